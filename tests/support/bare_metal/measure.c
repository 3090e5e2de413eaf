/* Runs infer() on a Cortex-M of QEMU, started with -icount shift=0: prints its instructions, in steps of 1000 / MHZ (of
   SysTick; an instruction takes 1 ns), and the bytes of stack below its caller that were written. */
#include <stdint.h>
#include <stdio.h>

#define SYSTICK ((volatile uint32_t *)0xE000E010)

void infer(void);

int main(void) {
    infer();
    volatile unsigned char *sp;
    __asm__ volatile("mov %0, sp" : "=r"(sp));
    for (int k = 1; k <= PAINTED; k++) sp[-k] = 0xA5;
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    infer();
    const uint32_t ticks = 0xFFFFFF - SYSTICK[2];
    int used = PAINTED;
    while (used > 0 && sp[-used] == 0xA5) used--;
    printf("%lu %d\n", (unsigned long)((uint64_t)ticks * 1000 / MHZ), used);
    return 0;
}
