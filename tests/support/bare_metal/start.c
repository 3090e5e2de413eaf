/* The beginning of a program for a Cortex-M without an operating system: vectors, then newlib's own start. */
extern char stack_top[];
void _mainCRTStartup(void);

static void start(void) {
#ifdef __ARM_FP
    *(volatile unsigned *)0xE000ED88 |= 0xFu << 20; /* CPACR: the floating-point unit is on */
    __asm__ volatile("dsb\n isb");
#endif
    _mainCRTStartup();
}

static void fault(void) {
    for (;;) __asm__ volatile("bkpt 0");
}

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    stack_top, (void *)start, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault};
