/* See mappings.h. */
#include "base/mappings.h"

#include <stdio.h>
#include <stdlib.h>

bool sgp_mappings_visit(bool (*visit)(const struct sgp_mapping *mapping, void *what), void *what)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    bool goes_on = maps;

    while (goes_on && getline(&line, &room, maps) > 0) {
        unsigned long start, end;
        char access[5];

        goes_on = sscanf(line, "%lx-%lx %4s", &start, &end, access) == 3;
        if (goes_on) {
            const struct sgp_mapping mapping = {
                .start = start, .end = end, .is_writable = access[1] == 'w', .is_shared = access[3] == 's'};

            goes_on = visit(&mapping, what);
        }
    }
    goes_on = goes_on && !ferror(maps);
    free(line);
    if (maps) {
        fclose(maps);
    }
    return goes_on;
}
