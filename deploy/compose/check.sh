#!/usr/bin/env bash
# Proves the lab: starts it, submits without a pause, kills the leader's container, cuts the next leader off the network,
# and compares what ran with what was promised. Everything it made is gone at its end; --keep leaves the lab running.
set -euo pipefail
cd "$(dirname "$0")"

# Volumes of its own: a lab's data is never touched.
export COMPOSE_PROJECT_NAME=drigs-check
readonly CLIENT=drigs-check-client
readonly SUBMITTERS=4
readonly ARRAY_TASKS=40
readonly TICKS=150
readonly DEADLINE_S=60
SCRATCH=$(mktemp -d)

main() {
    local keep=${1:-}
    refuse_if_running
    trap 'clean_up "$?" "'"$keep"'"' EXIT

    start_lab
    submit_work
    kill_leader
    restart_killed
    isolate_leader
    reconnect_isolated
    wait_until_idle
    check_every_start
    check_replicas
    report
}

# ---- the tour

start_lab() {
    docker image inspect drigs >/dev/null 2>&1 || compose build
    local begin; begin=$(now_ms)
    compose up -d >"$SCRATCH/up" 2>&1 || { cat "$SCRATCH/up" >&2; fail "the lab does not start"; }
    until_true "three workers are ready" has_ready_workers
    figure "up until three workers are ready" "$(($(now_ms) - begin)) ms"
    until_true "all healthchecks pass" is_healthy
}

# One shell per client, in a container of its own, so that an acknowledgement is noted milliseconds after it came.
submit_work() {
    docker run -d --name "$CLIENT" --init --network drigs --volume "${COMPOSE_PROJECT_NAME}_token:/run/drigs:ro" \
        --env "DRIGS_CONTROLLERS=$(docker exec drigs-worker-1 printenv DRIGS_CONTROLLERS)" \
        --env DRIGS_TOKEN_FILE=/run/drigs/token \
        --entrypoint sleep drigs infinity >/dev/null
    ARRAY=$(client drigs submit --parsable -J array -a "0-$((ARRAY_TASKS - 1))" -- \
        sh -c 'echo "array-$DRIGS_TASK_ID" >>/tmp/starts; sleep 0.2')
    LONG=$(client drigs submit --parsable -J long --gpus 1 -- \
        sh -c "echo long >>/tmp/starts; for i in \$(seq $TICKS); do echo tick \$i; sleep 0.2; done")
    say "job $ARRAY is an array of $ARRAY_TASKS tasks, job $LONG prints $TICKS lines"
    local number
    for number in $(seq "$SUBMITTERS"); do
        docker exec -d "$CLIENT" sh -c "$(submitter "$number")"
    done
    say "$SUBMITTERS clients submit without a pause"
    until_true "submissions are acknowledged" has_acknowledgements
}

submitter() {
    cat <<END
n=0
while [ ! -e /tmp/stop ]; do
    name=client-$1-\$n
    if drigs submit --parsable -J \$name -- sh -c "echo \$name >>/tmp/starts" >/dev/null 2>>/tmp/errors; then
        echo "\$(date +%s%3N) \$name" >>/tmp/acknowledged
    fi
    n=\$((n + 1))
    sleep 0.05
done
END
}

kill_leader() {
    sleep 1
    KILLED=$(leader)
    say "controller $KILLED leads; its container is killed"
    local at; at=$(now_ms)
    docker kill "drigs-controller-$KILLED" >/dev/null
    until_true "another controller leads" has_other_leader "$KILLED"
    measure_gap "$at" "leader's container killed (docker kill)"
    until_true "job $LONG goes on printing" has_printed 10
}

restart_killed() {
    docker start "drigs-controller-$KILLED" >/dev/null
    until_true "controller $KILLED is back" answers "$KILLED"
    say "controller $KILLED is started again"
}

isolate_leader() {
    sleep 1
    ISOLATED=$(leader)
    say "controller $ISOLATED leads; it is cut off the network"
    local at; at=$(now_ms)
    docker network disconnect drigs "drigs-controller-$ISOLATED"
    until_true "another controller leads" has_other_leader "$ISOLATED"
    measure_gap "$at" "leader cut off (docker network disconnect)"
    if docker exec --env DRIGS_CONTROLLERS=127.0.0.1:7070 "drigs-controller-$ISOLATED" \
        timeout 20 drigs status >"$SCRATCH/isolated" 2>&1; then
        cat "$SCRATCH/isolated" >&2
        fail "controller $ISOLATED answers for the cluster, though it is alone"
    fi
    say "controller $ISOLATED, alone, answers for nobody: $(tail -n 1 "$SCRATCH/isolated")"
}

reconnect_isolated() {
    docker network connect drigs "drigs-controller-$ISOLATED"
    until_true "controller $ISOLATED is back" answers "$ISOLATED"
    say "controller $ISOLATED is connected again"
}

wait_until_idle() {
    client touch /tmp/stop
    until_true "job $LONG is over" is_over "$LONG"
    until_true "nothing waits or runs" is_idle
}

# ---- what was promised, and what is

check_every_start() {
    client cat /tmp/acknowledged | cut -d' ' -f2 | sort >"$SCRATCH/promised"
    seq -f 'array-%.0f' 0 "$((ARRAY_TASKS - 1))" >>"$SCRATCH/promised"
    echo long >>"$SCRATCH/promised"
    local number
    for number in 1 2 3; do
        docker exec "drigs-worker-$number" cat /tmp/starts
    done | sort >"$SCRATCH/started"
    sort -o "$SCRATCH/promised" "$SCRATCH/promised"

    local lost twice
    lost=$(comm -23 "$SCRATCH/promised" <(uniq "$SCRATCH/started") | wc -l)
    twice=$(uniq -d "$SCRATCH/started" | wc -l)
    ((lost == 0)) || fail "$lost acknowledged tasks never ran"
    ((twice == 0)) || fail "$twice tasks ran twice: $(uniq -d "$SCRATCH/started" | head -n 3 | tr '\n' ' ')"
    local printed; printed=$(client drigs logs "$LONG" | grep -c '^tick ')
    ((printed == TICKS)) || fail "job $LONG printed $printed lines of $TICKS"
    local refused; refused=$(client sh -c 'cat /tmp/errors 2>/dev/null | wc -l')
    figure "acknowledged tasks" "$(wc -l <"$SCRATCH/promised"): lost 0, run twice 0"
    figure "error lines that clients saw" "$refused"
}

check_replicas() {
    until_true "all controllers have applied the same" is_consistent
    say "all three controllers have applied the same entries and name the same leader"
    local number
    for number in 1 2 3; do
        docker exec --env DRIGS_CONTROLLERS=127.0.0.1:7070 "drigs-controller-$number" \
            drigs jobs --stale --all --limit 10000 -o json >"$SCRATCH/jobs-$number"
        cmp -s "$SCRATCH/jobs-1" "$SCRATCH/jobs-$number" || fail "controllers 1 and $number list different jobs"
    done
}

# The longest time without an acknowledgement, from half a second before the fault on.
measure_gap() {
    local at=$1 what=$2
    until_true "submissions are acknowledged again" acknowledges_after "$at"
    sleep 3
    local gap
    gap=$(client sort -n /tmp/acknowledged | awk -v from="$((at - 500))" '
        $1 >= from { if (last && $1 - last > gap) gap = $1 - last; last = $1 }
        END { print gap + 0 }')
    figure "$what: longest time without an acknowledgement" "$gap ms"
}

# ---- conditions

has_ready_workers() { [ "$(docker exec drigs-controller-1 drigs status -o json 2>/dev/null | field workers_ready)" = 3 ]; }
is_healthy() { [ "$(docker ps --filter name=drigs-controller- --filter health=healthy --quiet | wc -l)" = 3 ]; }
has_acknowledgements() { client test -s /tmp/acknowledged; }
acknowledges_after() { client awk -v at="$(($1 + 200))" '$1 > at { found = 1 } END { exit !found }' /tmp/acknowledged; }
has_other_leader() { local now; now=$(leader) && [ "$now" != "$1" ]; }
answers() { health "$1" >/dev/null; }
has_printed() { [ "$(client drigs logs "$LONG" | grep -c '^tick ')" -ge "$1" ]; }
is_over() { client drigs wait --timeout 2s "$1" >/dev/null 2>&1; }
is_idle() {
    local status; status=$(client drigs status -o json)
    [ "$(for it in pending queued scheduled running recovering; do field "$it" <<<"$status"; done | sort -u)" = 0 ]
}
is_consistent() {
    local number answers=()
    for number in 1 2 3; do
        answers+=("$(health "$number" | grep -oE '"(leader|applied)":[0-9]+' | sort | tr '\n' ' ')")
    done
    [ -n "${answers[0]}" ] && [ "${answers[0]}" = "${answers[1]}" ] && [ "${answers[0]}" = "${answers[2]}" ]
}

# ---- words

# The leader that a controller with a leader names.
leader() {
    local number answer
    for number in 1 2 3; do
        if answer=$(health "$number") && field leader <<<"$answer" | grep -E '^[0-9]+$'; then
            return
        fi
    done
    return 1
}

# Through the ports on the host: who is killed or cut off does not answer.
health() { curl -sf --max-time 1 "http://127.0.0.1:800$1/v1/health"; }
field() { grep -oE "\"$1\": *[^,}]+" | head -n 1 | sed -E 's/^"[^"]+": *//'; }
client() { docker exec "$CLIENT" "$@"; }
compose() { if docker compose version >/dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi; }
now_ms() { date +%s%3N; }
say() { echo "• $*"; }
figure() { say "$1: $2"; echo "$1: $2" >>"$SCRATCH/figures"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

until_true() {
    local what=$1 deadline=$((SECONDS + DEADLINE_S)); shift
    until "$@"; do
        ((SECONDS < deadline)) || fail "not within $DEADLINE_S s: $what"
        sleep 0.05
    done
}

report() {
    figure "image" "$(docker image inspect --format '{{.Size}}' drigs | numfmt --to=si) bytes"
    echo
    cat "$SCRATCH/figures"
    echo "CHECK PASSED"
}

refuse_if_running() {
    local found; found=$(docker ps --all --quiet --filter 'name=^drigs-(token|controller|worker|check)')
    [ -z "$found" ] || fail "a lab is there already: docker-compose down, then try again"
}

clean_up() {
    local code=$1 keep=$2
    ((code == 0)) || compose logs --tail 20 >&2 || true
    docker rm -f "$CLIENT" >/dev/null 2>&1 || true
    [ "$keep" = --keep ] || compose down -v >/dev/null 2>&1
    rm -rf "$SCRATCH"
}

main "$@"
