"""What GCC is told to do, and not to do, for loops and for kernels."""

GCC_LOOPS = ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-funswitch-loops")
"""What GCC is told of loops and of kernels with vectors; other compilers have -O3 for it, and refuse some of these."""
GCC_LEFT_OUT = (
    *("-fno-tree-pre", "-fno-code-hoisting", "-fno-tree-dominator-opts"),
    *("-fno-crossjumping", "-fno-tree-tail-merge", "-fno-store-merging", "-fno-ree"),
    *("-fno-tree-slp-vectorize", "-fno-ipa-cp", "-fno-ipa-sra", "-fno-ipa-icf"),
    *("--param", "max-combine-insns=2"),
)
"""Passes of GCC's that take a seventh of its time for kernels, which are as fast without them: tiles are written with
vectors, without branches, and what does not change stands before their loops.  No result depends on them.

Of at most two instructions at a time, not of four, the combiner makes one: operands read from memory, which is what
tiles need of it.

Threading of jumps and ranges of values stay: without both, GCC 12 moves the sums of direct convolutions from register
to register, with AVX2 100 instructions for 40 multiply-adds instead of 82.

The last scheduling of instructions stays too, though it takes a tenth of the time: without it a direct convolution took
1.08 times as long with AVX2, and an attention 1.1 to 1.2 times with AVX-512, while most layers took the same."""
GCC_LEFT_OUT_OF_MANY_REGISTERS = ("-fno-gcse", "-fira-region=one")
"""The same, a twelfth of the time, where vectors have 32 registers.  Of 16, GCC 12 gives one to a copy that these save,
or looks at no loop alone, and stores sums between multiply-adds: of 48 layers three took 1.1 to 1.5 times as long, and
another one 2.3 times (Zen 4, x86-64-v3)."""
