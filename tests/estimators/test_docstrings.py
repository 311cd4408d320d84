"""What a newcomer meets in IPython: help, completion and how things are shown.

Examples run as they stand in the docstrings, and are compared as the documentation's blocks are: by their words, not by
their numbers. The only words that depend on noise are the predictions of the classifiers' examples, for patients chosen
so far from the border that the noise of a run would have to be more than five of its standard deviations: over 40 runs
of each, their scores were six deviations or more away from zero, a false-alarm rate below 10⁻⁶.
"""

import doctest
import inspect
from typing import Any

import numpy as np
import pytest
from IPython.lib.pretty import pretty
from sklearn.pipeline import make_pipeline

import ringfence
from ringfence.estimators import FederatedSearch
from ringfence.estimators.parameters import SECTIONS, docstring_sections, estimator_class, section_entries
from ringfence.protocol import Schema
from tests.docs.blocks import missing_pieces

ESTIMATORS: list[type] = [getattr(ringfence, name) for name in ringfence.__all__ if name.startswith("Federated")]
PUBLIC: list[type] = [*ESTIMATORS, FederatedSearch]

by_name = pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)


class ByWords(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return bool(want.strip()) == bool(got.strip()) and missing_pieces(want, got) == []


def run(example: doctest.DocTest) -> tuple[int, str]:
    """Run an example; return how many of its lines fail, and what is said of them."""
    said: list[str] = []
    failed = doctest.DocTestRunner(checker=ByWords()).run(example, out=said.append, clear_globs=False).failed
    return failed, "".join(said)


@by_name
def test_the_example_of_a_docstring_ends_as_it_says_and_all_that_its_fit_leaves_is_described(public: type) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(public, public.__name__, globs={})
    assert example.examples[-1].want, "it ends by showing something"
    failed, said = run(example)
    assert not failed, said
    (fitted,) = [value for value in example.globs.values() if isinstance(value, public)]
    left = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")}
    described = set(section_entries(docstring_sections(inspect.getdoc(public) or "")["Attributes"]))
    assert left <= described
    assert described <= left | {"feature_names_in_"}, "the example's table has no names"


@by_name
def test_a_docstring_describes_every_parameter_once_with_its_default(public: type) -> None:
    described = section_entries(docstring_sections(inspect.getdoc(public) or "")["Parameters"])
    parameters = inspect.signature(public).parameters
    assert list(described) == list(parameters)
    for name, parameter in parameters.items():
        assert public is FederatedSearch or parameter.kind == inspect.Parameter.KEYWORD_ONLY
        words = described[name].partition("\n")[2].strip()
        assert words.endswith("."), f"{name} is described by a sentence"
        if parameter.default is not inspect.Parameter.empty:
            assert f"default={parameter.default!r}".replace("'", '"') in described[name].partition("\n")[0], name


@by_name
def test_a_docstring_is_laid_out_as_numpy_s_are(public: type) -> None:
    sections = docstring_sections(inspect.getdoc(public) or "")
    assert [name for name in SECTIONS if name in sections] == list(SECTIONS) == list(sections)[1:]
    assert sections[""].split("\n\n")[0].endswith(".")
    assert "\n" not in sections[""].split("\n\n")[0], "the first line says what it is"


def test_a_derived_entry_takes_the_place_of_a_former_one() -> None:
    class Base:
        """For whoever reads the source.

        Parameters
        ----------
        a : int
            Former.
        b : int
            Kept.
        """

    class Derived(Base):
        """Words.

        Parameters
        ----------
        a : float
            Latter.
        """

    for one in (Base, Derived):
        one.__module__ = "ringfence.made_up"
    words = estimator_class(Derived).__doc__ or ""
    assert words == "Words.\n\nParameters\n----------\na : float\n    Latter.\nb : int\n    Kept."


@by_name
def test_help_names_types_as_they_are_written(public: type) -> None:
    members = [value for name, value in inspect.getmembers(public, inspect.isfunction) if not name.startswith("_")]
    ours: list[Any] = [member for member in members if member.__module__.startswith("ringfence.estimators")]
    shown = [str(inspect.signature(one)) for one in [public, *ours]]
    assert not [one for one in shown if "ringfence." in one or "numpy." in one or "typing." in one]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_every_method_says_what_it_does_and_score_that_it_is_not_private(estimator: type) -> None:
    methods = [name for name in dir(estimator) if not name.startswith("_") and callable(getattr(estimator, name))]
    assert not [name for name in methods if not inspect.getdoc(getattr(estimator, name))]
    assert "not private" in (inspect.getdoc(estimator.score) or "")  # type: ignore[attr-defined]


def test_an_estimator_shows_its_epsilon_and_what_is_not_a_default() -> None:
    model = ringfence.FederatedLogisticRegression(bounds=(0, 1), classes=["no", "yes"])
    assert repr(model) == "FederatedLogisticRegression(epsilon=1.0, bounds=(0, 1), classes=['no', 'yes'])"
    assert "FederatedLogisticRegression(" in repr(make_pipeline(model))


def test_an_estimator_is_shown_in_a_few_lines_however_much_it_is_given() -> None:
    many = np.zeros(500), np.ones(500)
    assert len(repr(ringfence.FederatedLinearRegression(epsilon=2.0, bounds=many, target_bounds=(0, 1)))) < 300
    columns = {name: {"type": "numeric", "lower": 0, "upper": 1} for name in ("dose", "effect")}
    schema = Schema.model_validate({"columns": columns, "target": "effect"}, strict=False)
    shown = repr(ringfence.FederatedLinearRegression(schema=schema))
    assert shown == "FederatedLinearRegression(epsilon=1.0, schema=<schema of 'effect'>)"


def shown(value: Any) -> str:
    """What IPython shows of a value."""
    return str(pretty(value, max_width=104))  # type: ignore[no-untyped-call]


def test_notebooks_show_what_a_fit_leaves_in_words_and_documents_in_short_lines() -> None:
    random = np.random.default_rng(12)
    X = random.uniform(size=(300, 1))
    model = ringfence.FederatedLinearRegression(bounds=(0, 1), target_bounds=(0, 1)).fit(X, X[:, 0])
    assert shown(model.privacy_) == str(model.privacy_)
    assert shown(model.evaluation_) == str(model.evaluation_)
    for document in (model.plan_, model.model_, model.plan_.data):
        lines = shown(document).splitlines()
        assert lines[0] == f"{type(document).__name__}("
        assert len(lines) < 20
        assert max(map(len, lines)) <= 104
