# Which parallel backends does smelt::smelt have? Threads always; oneTBB beside them when SMELT_TBB is AUTO and it is
# found; with ON oneTBB is there and the default.
# Included by the source tree and by the installed package, so both answer alike.

set(SMELT_TBB "AUTO" CACHE STRING "oneTBB: AUTO (there when found), ON (required, and the default executor), OFF")
set_property(CACHE SMELT_TBB PROPERTY STRINGS AUTO ON OFF)

# smelt_choose_tbb(<result>): sets <result> to whether TBB::tbb is to be used, and <result>_missing to a sentence when
# SMELT_TBB asks for it and it cannot be found.
macro(smelt_choose_tbb result)
  set(${result} FALSE)
  set(${result}_missing "")
  if(NOT "${SMELT_TBB}" MATCHES "^(AUTO|ON|OFF)$")
    set(${result}_missing "SMELT_TBB is '${SMELT_TBB}', and must be AUTO, ON or OFF")
  elseif(NOT SMELT_TBB STREQUAL "OFF")
    if(NOT TARGET TBB::tbb)
      find_package(TBB QUIET CONFIG)
    endif()
    if(TARGET TBB::tbb)
      set(${result} TRUE)
    elseif(SMELT_TBB STREQUAL "ON")
      set(${result}_missing "SMELT_TBB is ON and oneTBB was not found; install libtbb-dev, or set SMELT_TBB=OFF")
    endif()
  endif()
endmacro()
