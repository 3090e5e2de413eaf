"""Kernels."""
from irc.kernels.epilogue import Epilogue, acc, plain, slot, supported
from irc.kernels.conv import ConvKernel, conv
from irc.kernels.gemm import GemmKernel, gemm
from irc.kernels.isa import ISAS, Isa, host_isa, isa_of
from irc.kernels.text import PROTOTYPES
