# Writes two translation units from HEADERS (absolute, below INCLUDE_DIR): EVERYTHING includes them all; POISONED
# includes first what they take from outside smelt, then POISON, then them all.

set(outside "")
set(ours "")
foreach(header IN LISTS HEADERS)
  file(STRINGS "${header}" lines REGEX "^[ \t]*#[ \t]*include[ \t]*<")
  foreach(line IN LISTS lines)
    # Another architecture's intrinsics can be found here and still not compile.
    if(NOT line MATCHES "<(smelt/|arm_)" AND line MATCHES "<([^>]+)>")
      # Guarded by __has_include: some of these are only there under an option.
      list(APPEND outside "#if __has_include(<${CMAKE_MATCH_1}>)\n#include <${CMAKE_MATCH_1}>\n#endif\n")
    endif()
  endforeach()
  file(RELATIVE_PATH relative "${INCLUDE_DIR}" "${header}")
  string(APPEND ours "#include <${relative}>\n")
endforeach()

list(REMOVE_DUPLICATES outside)
list(JOIN outside "" outside)

file(WRITE "${EVERYTHING}" "${ours}")
file(WRITE "${POISONED}" "${outside}#include \"${POISON}\"\n${ours}")
