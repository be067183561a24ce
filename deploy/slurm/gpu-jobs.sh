#!/bin/sh
# Says which job has which GPU of this node, for trainwarden-exporter --collector.gpu-jobs.path.
# Give it to slurmd as both Prolog and Epilog. The prolog writes a file for each GPU of the job, the epilog removes it;
# a file is replaced as a whole, so a reader never sees half of one. Whatever goes wrong, it ends with 0: SLURM drains
# the node of a prolog that fails.
#
# A file is named by the GPU's UUID and holds a line for each job that has the GPU. With TRAINWARDEN_GPU_FILES=index it
# is named by SLURM's number of the GPU and holds nothing but ids, which is what dcgm-exporter reads
# (--hpc-job-mapping-dir): only for nodes on which SLURM and NVML count GPUs alike.

folder=${TRAINWARDEN_GPU_JOBS:-/run/trainwarden/gpu-jobs}
procfs=${TRAINWARDEN_PROCFS:-/proc}
names=${TRAINWARDEN_GPU_FILES:-uuid}
umask 022

plain() { # what is left of a text when it may be a word of a line
    printf '%s' "$1" | tr -cd 'A-Za-z0-9._-' | cut -c 1-128
}

name_of() { # the name of a GPU's file, by the number that SLURM gives the GPU: that of its device file
    if [ "$names" = uuid ]; then
        uuid=$(awk -F': *' -v minor="$1" '
            FNR == 1 { uuid = "" }
            /^GPU UUID/ { gsub(/[ \t]/, "", $2); uuid = $2 }
            /^Device Minor/ { gsub(/[ \t]/, "", $2); if ($2 == minor) { print uuid; exit } }
        ' "$procfs"/driver/nvidia/gpus/*/information 2>/dev/null | tr -cd 'A-Za-z0-9-')
    fi
    printf '%s' "${uuid:-$1}"
}

line() { # what is said of the job
    if [ "$names" != uuid ]; then
        echo "$job"
        return
    fi
    run=$(printf '%s' "${SLURM_JOB_COMMENT:-}" | tr ' ,;\t' '\n\n\n\n' | sed -n 's/^trainwarden://p' | head -n 1)
    text=$job
    [ -n "${SLURM_JOB_USER:-}" ] && text="$text user=$(plain "$SLURM_JOB_USER")"
    [ -n "${SLURM_JOB_PARTITION:-}" ] && text="$text partition=$(plain "$SLURM_JOB_PARTITION")"
    [ -n "$run" ] && text="$text run_id=$(plain "$run")"
    echo "$text"
}

update() { # put the line of the job into a GPU's file, or take it out
    uuid=
    name=$(name_of "$1")
    file=$folder/$name
    new=$folder/.$name.$$
    {
        [ -f "$file" ] && awk -v job="$job" '$1 != job' "$file"
        [ "$end" ] || line
    } >"$new" || { rm -f "$new"; return; }
    if [ -s "$new" ]; then mv -f "$new" "$file"; else rm -f "$new" "$file"; fi
}

job=$(plain "${SLURM_JOB_ID:-}")
case ${SLURM_SCRIPT_CONTEXT:-} in
    epilog*) end=yes ;;
    *) end= ;;
esac
[ -n "$job" ] || exit 0
{
    mkdir -p "$folder" || exit 0
    exec 9>"$folder/.lock"
    # Two jobs may share a GPU.
    flock -w 10 9 || exit 0
    printf '%s\n' "${SLURM_JOB_GPUS:-}" | tr ', ' '\n\n' | while read -r gpu; do
        case $gpu in
            *[!0-9]* | '') ;;
            *) update "$gpu" ;;
        esac
    done
} 2>/dev/null
exit 0
