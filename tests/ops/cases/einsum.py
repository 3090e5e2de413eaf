"""Einsum."""

from irc.ops.einsum import Einsum
from tests.ops.cases import Case, Spec

CASES = [
    *(
        Case(Einsum(equation=e), tuple(Spec("f32", s) for s in shapes), rtol=1e-5)
        for e, shapes in [
            ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
            ("bhqd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 3, 5)]),
            ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
            ("ij", [(3, 4)]),
            ("ji", [(3, 4)]),
            ("ij->", [(3, 4)]),
            ("ij -> j", [(3, 4)]),
            ("ii", [(4, 4)]),
            ("ii->i", [(4, 4)]),
            ("iji->j", [(4, 3, 4)]),
            ("bii,ij->bj", [(2, 4, 4), (4, 3)]),
            ("i,j->ij", [(3,), (4,)]),
            ("ij,ij->ij", [(3, 4), (3, 4)]),
            ("ij,kl->jl", [(3, 4), (2, 5)]),
            ("i,i", [(5,), (5,)]),
            ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
            ("ij,jk", [(3, 4), (4, 5)]),
            ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 6)]),
            ("...i,ij->...j", [(2, 3, 4), (4, 5)]),
            ("i...->...", [(3, 4, 2)]),
            ("b...,b->b...", [(2, 3, 4), (2,)]),
            ("b...,b->b...", [(3, 3, 3), (3,)]),
            ("...,...", [(), ()]),
            ("ij,jk->ik", [(0, 3), (3, 2)]),
            ("ij,jk->ik", [(3, 0), (0, 2)]),
            ("aB,Bc->ca", [(2, 3), (3, 4)]),
        ]
    ),
    *(
        Case(Einsum(equation="ij,kj->ki"), (Spec(t, (3, 4)), Spec(t, (2, 4))), rtol=r)
        for t, r in [("f64", 1e-12), ("f16", 2e-3), ("bf16", 2e-2), ("i32", 0), ("u8", 0), ("i64", 0)]
    ),
]
