// Which names do other people's headers define as macros? windows.h, X11, complex.h and termios.h define these, and
// smelt's headers must survive them.
#pragma once

#define min(a, b) smelt_poisoned_min
#define max(a, b) smelt_poisoned_max
#define I smelt_poisoned I
#define small smelt_poisoned small
#define B0 smelt_poisoned B0
