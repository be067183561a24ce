# Functions for training jobs that are shell scripts: bash 4 and later, dash and other POSIX shells.
#
#     . "$(trainwarden shell-init)"
#     tw_start llama-sft-7 20000
#     tw_phase load
#     ...
#     tw_step 100 2.71
#
# Nothing here ends the script but a `tw_start` that is refused, under `set -e`. How the script ended is recorded by a
# trap on EXIT, which first runs the trap that the script had there before. Traps on signals are set where the script has
# none: a shell that dies of a signal would run its EXIT trap with status 0, and look as if it had finished.
# shellcheck shell=sh

_tw_total=
_tw_said=
_tw_user_exit=
_tw_trapped=
_tw_signal=
_tw_failed=
_tw_failed_status=

# In bash, what failed last, and where: told by a trap on ERR, in functions too, where the script has none so far. A trap
# that it sets later takes the place of this one. (Here and not in tw_start: functions do not see such a trap.)
_tw_on_err() {
    _tw_failed_status=$1
    _tw_failed="line $2: $3"
}
if [ -n "${BASH_VERSION-}" ]; then
    # shellcheck disable=SC3047  # bash has ERR
    if [ -z "$(trap -p ERR)" ]; then
        set -E
        trap '_tw_on_err "$?" "$LINENO" "$BASH_COMMAND"' ERR
    fi
fi

# tw_start RUN_ID [TOTAL_STEPS]: begin an attempt; say that it lives for as long as this script runs.
tw_start() {
    _tw_answer=$(trainwarden keep --pid "$$" --run-id "${1-}") || return $?
    _tw_total=${2-}
    _tw_said=
    TRAINWARDEN_RUN_ID=${1:-$TRAINWARDEN_RUN_ID}
    TRAINWARDEN_ATTEMPT_KEY=${_tw_answer%%"
"*}
    TRAINWARDEN_RUNS_DIR=${_tw_answer#*"
"}
    export TRAINWARDEN_RUN_ID TRAINWARDEN_ATTEMPT_KEY TRAINWARDEN_RUNS_DIR
    _tw_set_traps
}

# tw_phase NAME: init, compile, train, eval, checkpoint, load, idle or done.
tw_phase() {
    trainwarden phase "${1-}" || :
}

# tw_step N [LOSS [OPTION...]]: the loop has made step N; options as of `trainwarden heartbeat`.
tw_step() {
    _tw_step=${1-}
    _tw_loss=${2-}
    if [ $# -gt 2 ]; then shift 2; else set --; fi
    trainwarden heartbeat --step "$_tw_step" --loss "$_tw_loss" --total-steps "$_tw_total" "$@" || :
}

# tw_fail MESSAGE [OPTION...]: the run has failed; options as of `trainwarden fail`. It does not end the script.
tw_fail() {
    _tw_said=1
    _tw_message=${1-}
    if [ $# -gt 0 ]; then shift; fi
    printf '%s\n' "$_tw_message" | trainwarden fail - "$@" || :
}

_tw_set_traps() {
    _tw_trapped=' '
    _tw_file=
    if [ -z "${BASH_VERSION-}" ]; then
        _tw_file=$(mktemp) || return 0
        trap >"$_tw_file"
    fi
    # A line of `trap` that was the beginning of one, told to _tw_note_trap. It is the script's own code, quoted by the
    # shell for exactly this use.
    eval "$(_tw_print_traps | sed 's/^trap -- /_tw_note_trap -- /')"
    if [ -n "$_tw_file" ]; then rm -f "$_tw_file"; fi
    for _tw_name in HUP INT QUIT USR1 USR2 PIPE ALRM TERM; do
        case $_tw_trapped in
        *" $_tw_name "*) ;;
        # shellcheck disable=SC2064  # the name is that of now
        *) trap "_tw_signal=$_tw_name; exit $((128 + $(_tw_number $_tw_name)))" "$_tw_name" ;;
        esac
    done
    trap '_tw_at_exit "$?" "${BASH_COMMAND-}"' EXIT
}

# Only bash tells a subshell of the traps outside it.
_tw_print_traps() {
    if [ -n "$_tw_file" ]; then cat "$_tw_file"; else trap; fi
}

_tw_note_trap() {
    case ${2-} in *_tw_*) return 0 ;; esac
    case ${3-} in
    EXIT | 0) _tw_user_exit=$2 ;;
    ERR) ;;
    *) _tw_trapped="$_tw_trapped${3#SIG} " ;;
    esac
}

_tw_number() {
    case $1 in
    HUP) echo 1 ;; INT) echo 2 ;; QUIT) echo 3 ;; USR1) echo 10 ;; USR2) echo 12 ;; PIPE) echo 13 ;; ALRM) echo 14 ;;
    *) echo 15 ;;
    esac
}

_tw_return() {
    return "$1"
}

_tw_at_exit() {
    set +eu
    trap - EXIT
    _tw_code=$1
    _tw_command=$2
    if [ "$_tw_failed_status" = "$_tw_code" ]; then _tw_command=$_tw_failed; fi
    if [ "$_tw_code" -eq 0 ]; then
        eval "$_tw_user_exit"
        if [ -z "$_tw_said" ]; then trainwarden complete || :; fi
    else
        _tw_return "$_tw_code" || eval "$_tw_user_exit"
        if [ -z "$_tw_said" ]; then
            printf '%s\n' "the script ended with status $_tw_code${_tw_command:+ at $_tw_command}" |
                trainwarden fail - --exit-code "$_tw_code" || :
        fi
    fi
    if [ -n "$_tw_signal" ]; then
        trap - "$_tw_signal"
        kill -s "$_tw_signal" "$$"
    fi
    exit "$_tw_code"
}
