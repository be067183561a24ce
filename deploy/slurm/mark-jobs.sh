#!/bin/sh
# Marks the jobs of some partitions as training runs when they get their nodes, for `trainwarden slurm watch`:
# docs/plain-jobs.md. For slurm.conf as PrologSlurmctld, or as Prolog where slurmd's user may change the comments of jobs;
# where job_submit plugins can be had, job_submit.lua does the same without a call of SLURM's commands.
# Whatever goes wrong, it ends with 0: a prolog that fails requeues its job.

partitions=${TRAINWARDEN_PARTITIONS:-gpu} # names with spaces between them
mark='trainwarden:%x-%A_%a'               # the watch puts the job's name, id and task in place of the tokens

matches() {
    for each in $partitions; do
        [ "$each" = "${SLURM_JOB_PARTITION:-}" ] && return 0
    done
    return 1
}

case ${SLURM_JOB_ID:-} in
    *[!0-9]* | '') exit 0 ;;
esac
matches || exit 0
# The bare id of an array stands for all of its tasks.
job=$SLURM_JOB_ID
case ${SLURM_ARRAY_JOB_ID:-}_${SLURM_ARRAY_TASK_ID:-} in
    *[!0-9_]* | _* | *_) ;;
    *) job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} ;;
esac
# Without an answer nothing is written: a mark of the user's must not be lost.
comment=$(squeue --noheader --jobs="$job" --format=%k 2>/dev/null) || exit 0
case $comment in
    *trainwarden:* | '') exit 0 ;;
    '(null)') comment=$mark ;;
    *) comment="$comment $mark" ;;
esac
scontrol update "JobId=$job" "Comment=$comment" >/dev/null 2>&1
exit 0
