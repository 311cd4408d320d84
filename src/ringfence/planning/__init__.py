"""From a request to a plan: algorithm, rounds and noise, from public numbers only. No record is read.

    proposal = propose_for(PlanRequest(epsilon=1.0), schema, {"north": 500, "south": 800})
    proposal.plan

`request` says what may be asked for, `propose` makes the plan, `algorithm_choice` chooses by `loss_bounds`, and
`explain` and `noise_warnings` say why and what to expect.

Internal: may change without notice. `ringfence` lists what is public.
"""
