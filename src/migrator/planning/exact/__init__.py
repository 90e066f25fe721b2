"""The exact planner: prices for a bound, label search for the proof (`paper` charge).

Kernels here and in `survivors` index arrays by these letters; docstrings give the axes of each
array in brackets.

t, slot: slot; arrays of length slots + 1 also have the window's end
m: tenant
p, q: pattern of the tenant (q: the one changed to)
j: joint pattern
k: instance size
r: set of retrainings that can run at the same time
s: step of a tenant: what serves on from the slot before, what serves now, what begins to serve
place, at: placement on the board
c: configuration of a retraining
option: configuration and size: c x sizes + k
way: configuration and placement: c x placements + place
stage: 0 before a retraining, 1 + c after one in configuration c
mask: memory slices that retrainings occupy, one bit each
n, i: position in a list; lists of varying length end with -1
row, label, state: row of a table of labels or states; the tables now and then hold those before
    and after the slot
"""
