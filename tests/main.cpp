// Where is main? Version 3 of Catch2 brings its own; version 2 generates it here, once for every test program.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
