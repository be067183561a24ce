/*
 * A stand-in for libnvidia-ml.so.1 that does what a script says, so that the real wrapper and the real exporter can be
 * shown a GPU that is lost, hangs, or says nonsense.
 *
 * The script is the file that FAKE_NVML_SCRIPT names, lines of `key value`, read again when it changes. A key may be
 * for one GPU: `3.power 700000`. What it says of calls: `return.CALL code`, `hang.CALL 1`, `slow.CALL milliseconds`.
 * Errors to be told: `xid.N GPU CODE`, N counting from 1. What is done is noted in the file that FAKE_NVML_LOG names.
 * A symbol is left out with -DSYMBOL=absent_SYMBOL, which gives it another name.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef void *Handle;
enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, MISSING = 6, LATE = 10, LOST = 15, MISMATCH = 25 };
enum { LINES = 2048, WIDTH = 160, MIG_BASE = 1000, MIG_MAX = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char keys[LINES][WIDTH], values[LINES][WIDTH];
static int lines;
static struct timespec read_at;
static ino_t read_from;
static int told; /* errors of the script that were told, or were in it before anybody listened */
static int listening[64];

static void refresh(void) {
    const char *path = getenv("FAKE_NVML_SCRIPT");
    struct stat now;
    if (path == NULL || stat(path, &now) != 0) return;
    if (now.st_ino == read_from && now.st_mtim.tv_nsec == read_at.tv_nsec && now.st_mtim.tv_sec == read_at.tv_sec) return;
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    char line[2 * WIDTH];
    lines = 0;
    while (lines < LINES && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *blank = strchr(line, ' ');
        if (blank == NULL) continue;
        *blank = 0;
        snprintf(keys[lines], WIDTH, "%.*s", WIDTH - 1, line);
        snprintf(values[lines], WIDTH, "%.*s", WIDTH - 1, blank + 1);
        lines++;
    }
    fclose(file);
    read_at = now.st_mtim;
    read_from = now.st_ino;
}

/* Copies the value of `key`, for this GPU first, to `into`; 0 if the script has none. */
static int look_up(int gpu, const char *key, char *into) {
    char own[WIDTH];
    int found = 0;
    snprintf(own, sizeof own, "%d.%s", gpu, key);
    pthread_mutex_lock(&lock);
    refresh();
    for (int pass = 0; pass < 2 && !found; pass++)
        for (int i = 0; i < lines && !found; i++)
            if (strcmp(keys[i], pass == 0 ? own : key) == 0) {
                memcpy(into, values[i], WIDTH);
                found = 1;
            }
    pthread_mutex_unlock(&lock);
    return found;
}

static int has(int gpu, const char *key, uint64_t *number) {
    char value[WIDTH];
    if (!look_up(gpu, key, value)) return 0;
    *number = strtoull(value, NULL, 0);
    return 1;
}

static uint64_t number(int gpu, const char *key, uint64_t otherwise) {
    uint64_t found = otherwise;
    has(gpu, key, &found);
    return found;
}

static void note(const char *what) {
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    if (file == NULL) return;
    fprintf(file, "%d %s\n", (int)getpid(), what);
    fclose(file);
}

static void pause_milliseconds(long milliseconds) {
    struct timespec span = {milliseconds / 1000, (milliseconds % 1000) * 1000000};
    nanosleep(&span, NULL);
}

/* What the script does to a call before it is answered; the return code. */
static int called(const char *call, int gpu) {
    char key[WIDTH];
    snprintf(key, sizeof key, "hang.%s", call);
    while (number(gpu, key, 0)) pause_milliseconds(20);
    snprintf(key, sizeof key, "slow.%s", call);
    uint64_t slow = number(gpu, key, 0);
    if (slow) pause_milliseconds((long)slow);
    if (number(-1, "note_calls", 0)) note(call);
    snprintf(key, sizeof key, "return.%s", call);
    return (int)number(gpu, key, gpu >= 0 && number(gpu, "lost", 0) ? LOST : OK);
}

static int gpu_of(Handle handle) {
    intptr_t place = (intptr_t)handle;
    return (int)(place >= MIG_BASE ? (place - MIG_BASE) / MIG_MAX : place - 1);
}

static int instance_of(Handle handle) { return (intptr_t)handle >= MIG_BASE ? (int)((intptr_t)handle % MIG_MAX) : -1; }

static int words(int gpu, const char *key, char *into, unsigned size) {
    char value[WIDTH];
    if (!look_up(gpu, key, value)) return UNSUPPORTED;
    snprintf(into, size, "%s", value);
    return OK;
}

#define ENTER(call, handle)                        \
    int gpu = gpu_of(handle), code = called(call, gpu); \
    if (code != OK) return code

#define NUMBER(call, key, type)                                    \
    int call(Handle handle, type *answer) {                        \
        uint64_t found;                                            \
        ENTER(#call, handle);                                      \
        if (!has(gpu, key, &found)) return UNSUPPORTED;            \
        *answer = (type)found;                                     \
        return OK;                                                 \
    }

#define WORDS(call, key)                                                \
    int call(Handle handle, char *answer, unsigned size) {              \
        ENTER(#call, handle);                                           \
        return words(gpu, key, answer, size);                           \
    }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = called("nvmlInit_v2", -1);
    if (code == OK) note("init");
    return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    note("shutdown");
    return called("nvmlShutdown", -1);
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error";
}

int nvmlSystemGetDriverVersion(char *answer, unsigned size) {
    int code = called("nvmlSystemGetDriverVersion", -1);
    return code == OK ? words(-1, "driver", answer, size) : code;
}

int nvmlDeviceGetCount_v2(unsigned *answer) {
    *answer = (unsigned)number(-1, "count", 0);
    return called("nvmlDeviceGetCount_v2", -1);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *answer) {
    int code = called("nvmlDeviceGetHandleByIndex_v2", (int)index);
    if (code == OK && index >= number(-1, "count", 0)) return INVALID;
    *answer = (Handle)(intptr_t)(index + 1);
    return code;
}

static int same_address(const char *one, const char *other) {
    unsigned a[3] = {0}, b[3] = {0};
    return sscanf(one, "%x:%x:%x", a, a + 1, a + 2) == 3 && sscanf(other, "%x:%x:%x", b, b + 1, b + 2) == 3 &&
           memcmp(a, b, sizeof a) == 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Handle *answer) {
    int count = (int)number(-1, "count", 0);
    for (int i = 0; i < count; i++) {
        char bus[WIDTH];
        if (!look_up(i, "bus", bus) || !same_address(bus, address)) continue;
        int code = called("nvmlDeviceGetHandleByPciBusId_v2", i);
        if (code == OK) note("open");
        *answer = (Handle)(intptr_t)(i + 1);
        return code;
    }
    return MISSING;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char address[32];
} PciInfo;

int nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo *answer) {
    ENTER("nvmlDeviceGetPciInfo_v3", handle);
    memset(answer, 0, sizeof *answer);
    return words(gpu, "bus", answer->address, sizeof answer->address);
}

NUMBER(nvmlDeviceGetIndex, "index", unsigned)
NUMBER(nvmlDeviceGetMinorNumber, "minor", unsigned)
NUMBER(nvmlDeviceGetPowerUsage, "power", unsigned)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit", unsigned)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy", uint64_t)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "reasons", uint64_t)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "reasons", uint64_t)
NUMBER(nvmlDeviceGetPcieReplayCounter, "replays", unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "width", unsigned)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "generation", unsigned)
WORDS(nvmlDeviceGetSerial, "serial")
WORDS(nvmlDeviceGetVbiosVersion, "vbios")

int nvmlDeviceGetName(Handle handle, char *answer, unsigned size) {
    ENTER("nvmlDeviceGetName", handle);
    char key[WIDTH];
    snprintf(key, sizeof key, "mig.%d.name", instance_of(handle));
    return words(gpu, instance_of(handle) < 0 ? "model" : key, answer, size);
}

int nvmlDeviceGetUUID(Handle handle, char *answer, unsigned size) {
    ENTER("nvmlDeviceGetUUID", handle);
    char key[WIDTH];
    snprintf(key, sizeof key, "mig.%d.uuid", instance_of(handle));
    return words(gpu, instance_of(handle) < 0 ? "uuid" : key, answer, size);
}

int nvmlDeviceGetUtilizationRates(Handle handle, unsigned *answer) {
    ENTER("nvmlDeviceGetUtilizationRates", handle);
    uint64_t busy;
    if (!has(gpu, "utilization", &busy)) return UNSUPPORTED;
    answer[0] = (unsigned)busy;
    answer[1] = (unsigned)number(gpu, "memory_busy", 0);
    return OK;
}

typedef struct {
    uint64_t total, free, used;
} Memory;

typedef struct {
    unsigned version;
    uint64_t total, reserved, free, used;
} Memory2;

int nvmlDeviceGetMemoryInfo(Handle handle, Memory *answer) {
    ENTER("nvmlDeviceGetMemoryInfo", handle);
    char size[WIDTH], used[WIDTH];
    int instance = instance_of(handle);
    snprintf(size, sizeof size, "mig.%d.memory", instance);
    snprintf(used, sizeof used, "mig.%d.memory_used", instance);
    if (!has(gpu, instance < 0 ? "memory" : size, &answer->total)) return UNSUPPORTED;
    answer->used = number(gpu, instance < 0 ? "memory_used" : used, 0);
    /* As the first version of the call does: what the driver keeps for itself counts as used. */
    snprintf(used, sizeof used, "mig.%d.memory_reserved", instance);
    answer->used += instance < 0 ? 0 : number(gpu, used, 0);
    answer->free = answer->total - answer->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(Handle handle, Memory2 *answer) {
    ENTER("nvmlDeviceGetMemoryInfo_v2", handle);
    char size[WIDTH], used[WIDTH], reserved[WIDTH];
    int instance = instance_of(handle);
    snprintf(size, sizeof size, "mig.%d.memory", instance);
    snprintf(used, sizeof used, "mig.%d.memory_used", instance);
    snprintf(reserved, sizeof reserved, "mig.%d.memory_reserved", instance);
    if (!has(gpu, instance < 0 ? "memory" : size, &answer->total)) return UNSUPPORTED;
    answer->used = number(gpu, instance < 0 ? "memory_used" : used, 0);
    answer->reserved = number(gpu, instance < 0 ? "memory_reserved" : reserved, 0);
    answer->free = answer->total - answer->used - answer->reserved;
    return OK;
}

int nvmlDeviceGetTemperature(Handle handle, unsigned sensor, unsigned *answer) {
    ENTER("nvmlDeviceGetTemperature", handle);
    uint64_t found;
    if (sensor != 0) return INVALID;
    if (!has(gpu, "temperature", &found)) return UNSUPPORTED;
    *answer = (unsigned)found;
    return OK;
}

int nvmlDeviceGetMarginTemperature(Handle handle, int *answer) {
    ENTER("nvmlDeviceGetMarginTemperature", handle);
    uint64_t found;
    if (!has(gpu, "margin", &found)) return UNSUPPORTED;
    answer[1] = (int)found; /* after its version */
    return OK;
}

int nvmlDeviceGetClockInfo(Handle handle, unsigned clock, unsigned *answer) {
    ENTER("nvmlDeviceGetClockInfo", handle);
    char key[WIDTH];
    uint64_t found;
    snprintf(key, sizeof key, "clock.%u", clock);
    if (!has(gpu, key, &found)) return UNSUPPORTED;
    *answer = (unsigned)found;
    return OK;
}

typedef struct {
    unsigned field, scope;
    int64_t timestamp, latency;
    unsigned type;
    int code;
    union {
        double real;
        uint64_t whole;
    } value;
} FieldValue;

int nvmlDeviceGetFieldValues(Handle handle, int count, FieldValue *fields) {
    ENTER("nvmlDeviceGetFieldValues", handle);
    for (int i = 0; i < count; i++) {
        char key[WIDTH], value[WIDTH];
        snprintf(key, sizeof key, "field_return.%u", fields[i].field);
        fields[i].code = (int)number(gpu, key, OK);
        if (fields[i].code != OK) continue;
        snprintf(key, sizeof key, "field.%u.%u", fields[i].field, fields[i].scope);
        int found = look_up(gpu, key, value);
        snprintf(key, sizeof key, "field.%u", fields[i].field);
        if (!found && !look_up(gpu, key, value)) {
            fields[i].code = UNSUPPORTED;
        } else if (strchr(value, '.') != NULL) {
            fields[i].type = 0;
            fields[i].value.real = strtod(value, NULL);
        } else {
            fields[i].type = 3;
            fields[i].value.whole = strtoull(value, NULL, 0);
        }
    }
    return OK;
}

int nvmlDeviceGetRemappedRows(Handle handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    ENTER("nvmlDeviceGetRemappedRows", handle);
    uint64_t found;
    if (!has(gpu, "rows.corrected", &found)) return UNSUPPORTED;
    *corrected = (unsigned)found;
    *uncorrected = (unsigned)number(gpu, "rows.uncorrected", 0);
    *pending = (unsigned)number(gpu, "rows.pending", 0);
    *failure = (unsigned)number(gpu, "rows.failure", 0);
    return OK;
}

typedef struct {
    unsigned version;
    uint8_t cluster[16];
    int status;
    unsigned clique, state, health;
    uint8_t summary; /* since version 3 */
} Fabric;

int nvmlDeviceGetGpuFabricInfoV(Handle handle, Fabric *answer) {
    ENTER("nvmlDeviceGetGpuFabricInfoV", handle);
    unsigned version = answer->version >> 24;
    if (version > number(gpu, "fabric.version", 3)) return MISMATCH;
    answer->state = (unsigned)number(gpu, "fabric.state", 0);
    answer->status = (int)number(gpu, "fabric.status", 0);
    answer->health = (unsigned)number(gpu, "fabric.mask", 0);
    if (version >= 3) answer->summary = (uint8_t)number(gpu, "fabric.summary", 0);
    return OK;
}

typedef struct {
    unsigned version;
    uint64_t counts[11];
    unsigned exceeded;
} Sram;

int nvmlDeviceGetSramEccErrorStatus(Handle handle, Sram *answer) {
    ENTER("nvmlDeviceGetSramEccErrorStatus", handle);
    uint64_t found;
    if (!has(gpu, "sram_exceeded", &found)) return UNSUPPORTED;
    answer->exceeded = (unsigned)found;
    return OK;
}

typedef struct {
    unsigned version, supported;
} GpmSupport;

int nvmlGpmQueryDeviceSupport(Handle handle, GpmSupport *answer) {
    ENTER("nvmlGpmQueryDeviceSupport", handle);
    answer->supported = (unsigned)number(gpu, "gpm", 0);
    return OK;
}

int nvmlGpmSampleAlloc(int **answer) {
    note("gpm sample");
    *answer = malloc(sizeof **answer);
    return OK;
}

int nvmlGpmSampleGet(Handle handle, int *sample) {
    ENTER("nvmlGpmSampleGet", handle);
    *sample = gpu;
    return OK;
}

int nvmlGpmMigSampleGet(Handle handle, unsigned instance, int *sample) {
    ENTER("nvmlGpmMigSampleGet", handle);
    *sample = MIG_BASE + gpu * MIG_MAX + (int)instance - 1;
    return OK;
}

typedef struct {
    unsigned id;
    int code;
    double value;
    const char *names[3];
} GpmMetric;

typedef struct {
    unsigned version, count;
    int *before, *after;
    GpmMetric metrics[];
} GpmMetrics;

int nvmlGpmMetricsGet(GpmMetrics *wanted) {
    if (wanted->version != 1 || wanted->before == wanted->after || *wanted->before != *wanted->after) return INVALID;
    int of = *wanted->after - MIG_BASE, gpu = of < 0 ? *wanted->after : of / MIG_MAX;
    for (unsigned i = 0; i < wanted->count; i++) {
        char key[WIDTH], value[WIDTH];
        if (of < 0) snprintf(key, sizeof key, "gpm.%u", wanted->metrics[i].id);
        else snprintf(key, sizeof key, "mig.%d.gpm.%u", of % MIG_MAX, wanted->metrics[i].id);
        wanted->metrics[i].code = look_up(gpu, key, value) ? OK : UNSUPPORTED;
        if (wanted->metrics[i].code == OK) wanted->metrics[i].value = strtod(value, NULL);
    }
    return called("nvmlGpmMetricsGet", gpu);
}

int nvmlDeviceGetNvLinkState(Handle handle, unsigned link, unsigned *answer) {
    ENTER("nvmlDeviceGetNvLinkState", handle);
    char key[WIDTH];
    if (link >= number(gpu, "links", 0)) return UNSUPPORTED;
    snprintf(key, sizeof key, "link.%u", link);
    *answer = (unsigned)number(gpu, key, 1);
    return OK;
}

int nvmlDeviceGetMigMode(Handle handle, unsigned *current, unsigned *pending) {
    ENTER("nvmlDeviceGetMigMode", handle);
    uint64_t found;
    if (!has(gpu, "mig", &found)) return UNSUPPORTED;
    *current = *pending = (unsigned)found;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned *answer) {
    ENTER("nvmlDeviceGetMaxMigDeviceCount", handle);
    *answer = MIG_MAX - 1;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned index, Handle *answer) {
    ENTER("nvmlDeviceGetMigDeviceHandleByIndex", handle);
    char key[WIDTH], value[WIDTH];
    snprintf(key, sizeof key, "mig.%u.uuid", index);
    if (!look_up(gpu, key, value)) return MISSING;
    *answer = (Handle)(intptr_t)(MIG_BASE + gpu * MIG_MAX + (int)index);
    return OK;
}

int nvmlDeviceGetGpuInstanceId(Handle handle, unsigned *answer) {
    ENTER("nvmlDeviceGetGpuInstanceId", handle);
    *answer = (unsigned)instance_of(handle) + 1;
    return OK;
}

int nvmlDeviceGetComputeInstanceId(Handle handle, unsigned *answer) {
    ENTER("nvmlDeviceGetComputeInstanceId", handle);
    *answer = 0;
    return OK;
}

static int scripted(int place, int *gpu, uint64_t *xid) {
    char key[WIDTH], value[WIDTH];
    unsigned long long found;
    snprintf(key, sizeof key, "xid.%d", place);
    if (!look_up(-1, key, value) || sscanf(value, "%d %llu", gpu, &found) != 2) return 0;
    *xid = found;
    return 1;
}

int nvmlEventSetCreate(Handle *answer) {
    int code = called("nvmlEventSetCreate", -1), gpu;
    uint64_t xid;
    if (code != OK) return code;
    while (scripted(told + 1, &gpu, &xid)) told++;
    note("events");
    *answer = (Handle)1;
    return OK;
}

int nvmlEventSetFree(Handle set) {
    (void)set;
    note("no events");
    return OK;
}

int nvmlDeviceRegisterEvents(Handle handle, uint64_t kinds, Handle set) {
    ENTER("nvmlDeviceRegisterEvents", handle);
    (void)set;
    listening[gpu] = (kinds & 8) != 0;
    return OK;
}

typedef struct {
    Handle device;
    uint64_t kind, data;
    unsigned gpu_instance, compute_instance;
} Event;

int nvmlEventSetWait_v2(Handle set, Event *answer, unsigned milliseconds) {
    int code = called("nvmlEventSetWait_v2", -1), gpu;
    uint64_t xid;
    (void)set;
    if (code != OK) return code;
    for (unsigned waited = 0; waited <= milliseconds; waited += 10) {
        if (scripted(told + 1, &gpu, &xid)) {
            told++;
            if (gpu >= 0 && gpu < 64 && listening[gpu]) {
                memset(answer, 0, sizeof *answer);
                answer->device = (Handle)(intptr_t)(gpu + 1);
                answer->kind = 8;
                answer->data = xid;
                return OK;
            }
        }
        pause_milliseconds(10);
    }
    return LATE;
}

/* Ray asks who works on a GPU, and shows none of it where it is told that there is no such function. */
int nvmlDeviceGetComputeRunningProcesses_v3(Handle handle) { return (void)handle, UNSUPPORTED; }
int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle handle) { return (void)handle, UNSUPPORTED; }
