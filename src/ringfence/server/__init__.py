"""The untrusted room: sees messages only. Whatever happens here cannot weaken a silo's guarantee."""
