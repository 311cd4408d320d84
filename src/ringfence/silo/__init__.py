"""The trusted room: the only code that touches raw records, and the gate that guards them."""
