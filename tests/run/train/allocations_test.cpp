// Counts every allocation of this program, as the smelt program does. Alone in its file.
#include "../tools/smelt/allocations.cpp"
