#!/bin/sh
# Writes SLURM's nodes as targets for Prometheus:  slurm-targets.sh CLUSTER FILE [PORT]
# For cron:  * * * * * prometheus /opt/trainwarden/slurm-targets.sh my-cluster /etc/prometheus/targets/slurm-nodes.json
# A node that is down stays a target: that it is silent is what the alerts are for. One that is powered down is none.
set -eu
cluster=$1 file=$2 port=${3:-9745}

# --Node: a line for each node and partition. A list that is empty or that sinfo could not give leaves the file as it is.
nodes=$(sinfo --noheader --Node --format='%N %T' |
  awk -v port="$port" '$2 !~ /power(ed|ing)_down|~|%|future|cloud$/ && !seen[$1]++ {
    if ($1 !~ /^[A-Za-z0-9._-]+$/) next
    printf "%s\"%s:%s\"", n++ ? ", " : "", $1, port
  }')
[ -n "$nodes" ] || { echo "slurm-targets.sh: sinfo names no node; $file stays as it is" >&2; exit 1; }
case $cluster in *[!A-Za-z0-9._-]*) echo "slurm-targets.sh: $cluster, expected letters, digits, . _ -" >&2; exit 2 ;; esac

# Prometheus reads the file when it changes: never half of it.
temporary=$(mktemp "$file.XXXXXX")
trap 'rm -f "$temporary"' EXIT
printf '[{"targets": [%s], "labels": {"cluster": "%s"}}]\n' "$nodes" "$cluster" > "$temporary"
chmod 644 "$temporary"
mv "$temporary" "$file"
trap - EXIT
