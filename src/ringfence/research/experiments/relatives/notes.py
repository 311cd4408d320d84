"""What the relatives' page says about each: what was taken from its description, what was supplied, what it proves."""

from ringfence.protocol import Squared
from ringfence.research.experiments.relatives.federation import Federation
from ringfence.research.experiments.relatives.methods import RACED, TUNING_RUNS

DESCRIPTIONS = (
    "**Ringfence**: [preconditioned descent](../../algorithms.md#preconditioned-descent), without a survey where "
    "that could not tell directions apart; untuned. Constants of its rule were compared on these tables too.",
    "**DP-FedSOFIM** (Nair, Sen, Sen and Banerjee 2026). *Taken*: clipped mean gradients with Gaussian noise; at the "
    "server their bias-corrected moving mean M, and a step along (MMᵀ + ρI)⁻¹M by Sherman and Morrison. That is M/(ρ "
    "+ ‖M‖²): the matrix sets the length of the step, not its direction. *Supplied*: means weighted by records. "
    "*Privacy*: an exact accountant, for a replaced record, as here. But every client adds 1/√N of the noise, so its "
    "epsilon is about the sum over N clients; what one client sends has less protection unless sums are aggregated "
    "securely. Here every silo adds all of its noise.",
    "**FedNewton with noise, and DP Newton** (FedNewton: *Statistical optimality of Newton-type federated learning*, "
    "2025; DP Newton: Avella-Medina, Bradshaw and Loh 2023). *Taken*: in every round the mean gradient and the mean "
    "Hessian at the current weights, and a Newton step. *Supplied*: noise at every silo, which FedNewton does not "
    "have and which turns it into DP Newton across several parties; clipping; eigenvalues raised to a minimum; for "
    "softmax, Böhning's bound in place of the Hessian. *Privacy*: FedNewton claims none. DP Newton has a trusted "
    "curator and Gaussian DP for a replaced record, as here. In the published comparison, long steps are shortened "
    "according to the length of the step *without* noise, which is not private; here according to the noisy one.",
    "**FedHybrid with noise** (Niu and Wei 2021). *Taken*, from its abstract: copies of the weights at every silo, "
    "primal and dual steps, a primal step along the gradient or by Newton's method. *Supplied*: the exact form (one "
    "step on the augmented Lagrangian with penalty μ), clipping, and noise with a sensitivity that includes the "
    "hidden Hessian (Lemma X1 in `relatives/directions.py`). *Privacy*: it claims none.",
    "**DP-FedNew** (Krouka, Koskela and Kulkarni 2025, after FedNew, Elgabli and others 2022). *Taken*: one ADMM step "
    "per round towards the Newton direction; per-record gradients and right-hand sides are clipped; the features' "
    "second moments replace the Hessian and stay at the silo; the direction gets noise. *Supplied*: the sensitivity, "
    "2C/(ρn) + C·min(β/(ρ²n), 1/ρ), by the same lemma, with one clipping norm C for both, and no further damping α. "
    "*Privacy*: we read only the paper's abstract. The re-implementation published with DP-FedSOFIM assumes that the "
    "direction moves by C/γ, which does not fall with n, and splits the noise over the clients.",
    "**DP-FedFC** (a baseline of DP-FedSOFIM, known to us from its code): the features' second moments once, with "
    "noise; then noisy clipped gradients, multiplied by the inverse at the server. It is the closest to ours, which "
    "clips and adds noise *along* the axes that the moments give. *Supplied*: a fifth of the budget for the moments, "
    "as in our survey, and the ridge.",
    "**DP Newton by double noise** (Ganesh, Haghifam, Steinke and Thakurta 2023). *Taken*: noise in the gradient, "
    "then in its product with the inverse of the regularised Hessian, with their ridge by the noisy trace, for their "
    "quadratic upper bound. *Supplied*: with several parties, each applies its own Hessian to the mean gradient; "
    "losses other than logistic (it is published for two classes); clipping. *Privacy*: a trusted curator and zCDP; "
    "in their code a gradient of at most 1 has the sensitivity of a record that is left out, 1/n, where a replaced "
    "one has 2/n. Here all are for a replaced one, and composed exactly.",
    "**Iterative Hessian mixing** (Lev, Shenfeld, Srinivasan, Ligett and Wilson 2026). *Taken*: fresh Gaussian "
    "sketches of the features, with as much noise as the smallest eigenvalue, itself released with noise, makes "
    "necessary; noisy sums of clipped residuals times features. *Supplied*: labels by least squares, as ±1 or a "
    "column per class; for several parties the sum of their sketched Hessians. *Privacy*: a trusted curator; Rényi DP "
    "of sketches, ε and δ divided between its parts; in their code for a record that is left out (sums move by C, "
    "where a replaced one moves them by 2C). Here sketches, eigenvalue and sums are accounted for together, for a "
    "replaced record, by a pair that dominates them: Lemma X2 in `relatives/mixing.py`.",
)
"""One for each method, in the order of the page."""


def _settings() -> tuple[str, ...]:
    nothing = Federation(Squared(), (1, 1), 1.0, 1.0, ())
    tried = {relative.name: len(relative.grid(nothing)) for relative, _ in RACED.values()}
    counts = ", ".join(f"{name} {count}" for name, count in tried.items())
    return (
        "*Published* settings are those of the authors' own code: DP-FedSOFIM's command (70 rounds, clip 1, rate 0.1, "
        "ρ = 0.5, β = 0.9), both DP Newton methods as they were compared (15 rounds, 0.7 of the budget for gradients, "
        "eigenvalues of at least 10⁻⁵ for features of norm 1), mixing's main script (3 rounds, sketches of 6·max(d, "
        "log 4T/ϱ) rows, half of the budget for sums). They were made for other tables, and most for labels or for "
        "numbers only. For FedHybrid, DP-FedNew and DP-FedFC we found none.",
        f"*Chosen on the test set*: the smallest mean test error over {TUNING_RUNS} runs of every setting of a small "
        f"grid, then run with fresh noise. Settings tried: {counts}.",
        "The grids are small, to save time, and were changed after first looks: some were widened where the best "
        "settings lay at an edge, those of DP-FedSOFIM and DP Newton were cut. A wider grid flatters more: in a first "
        "look, with 64 settings, DP-FedSOFIM had regrets of 0.161, 0.053 and 0.009 on adult, bike and powerplant at ε "
        "= 1. Clipped descent in [the league](../league/index.md), with 180 settings, is about what it could reach.",
        "All methods start from weights of 0 and return the last point. Passes over records are in single precision.",
    )


SETTINGS = _settings()
