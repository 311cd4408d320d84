"""A whole federation in one process: real gates, ledgers and noise, with files or records of several silos.

`training` runs a plan through the silos' gates, `choosing` several candidates, `peers` without a server. `workflow`
does this for files, as `requests` describes them.

Internal: may change without notice. `ringfence` lists what is public.
"""
