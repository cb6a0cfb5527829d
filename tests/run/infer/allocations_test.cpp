// Counts every allocation of this program. Alone in its file.
#include "support/count_allocations.hpp"
