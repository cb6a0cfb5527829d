# Which cases does a Catch2 program hold? Run by ctest with room, program, list_arguments and run_arguments set:
# one test a case, labelled full when the case is tagged [full], quick otherwise. Hidden cases are others' to run.

if(NOT EXISTS "${program}")
  add_test("${room}: not built" "${program}")
  set_tests_properties("${room}: not built" PROPERTIES LABELS "quick;full")
  return()
endif()

foreach(label IN ITEMS quick full)
  if(label STREQUAL "quick")
    set(spec "~[full]~[.]")
    set(seconds 300)
  else()
    set(spec "[full]~[.]")
    set(seconds 900)
  endif()
  # Version 2 exits with the number of cases, so only text can tell a failure from a list.
  execute_process(
    COMMAND "${program}" ${list_arguments} "${spec}"
    OUTPUT_VARIABLE names
    ERROR_VARIABLE complaint
    RESULT_VARIABLE code)
  if(NOT code MATCHES "^[0-9]+$" OR NOT complaint STREQUAL "")
    add_test("${room}: cannot list its ${label} cases" "${program}" ${list_arguments} "${spec}")
    set_tests_properties("${room}: cannot list its ${label} cases" PROPERTIES LABELS "${label}" PASS_REGULAR_EXPRESSION
                                                                              "a listing never passes")
    continue()
  endif()
  # Semicolons and brackets mean something in a CMake list: they travel as control characters.
  string(ASCII 1 semicolon)
  string(ASCII 2 open)
  string(ASCII 3 close)
  string(REPLACE ";" "${semicolon}" names "${names}")
  string(REPLACE "[" "${open}" names "${names}")
  string(REPLACE "]" "${close}" names "${names}")
  string(REPLACE "\n" ";" names "${names}")
  foreach(name IN LISTS names)
    string(STRIP "${name}" name)
    if(name STREQUAL "")
      continue()
    endif()
    string(REPLACE "${semicolon}" ";" name "${name}")
    string(REPLACE "${open}" "[" name "${name}")
    string(REPLACE "${close}" "]" name "${name}")
    string(REGEX REPLACE "([][,\\\\])" "\\\\\\1" argument "${name}")
    add_test("${room}: ${name}" "${program}" ${run_arguments} "${argument}")
    set_tests_properties("${room}: ${name}" PROPERTIES LABELS "${label}" TIMEOUT ${seconds})
  endforeach()
endforeach()
