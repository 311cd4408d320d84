"""What things cost, measured: each file says how to run it. (Opacus has a package of this name; here ours is found.)"""
