#!/bin/sh
# Runs a pipeline for a supervisor that restarts after every failure. After a code that a restart does not change it
# ends with 0, so that the container stays stopped; the log has the error.

tailrace run "$@" &
run=$!
trap 'kill -TERM "$run"' TERM INT
# a signal ends the first wait
wait "$run"
code=$?
while kill -0 "$run" 2>/dev/null; do
  wait "$run"
  code=$?
done
case "$code" in
  2 | 4 | 5 | 6 | 7 | 8)
    echo "tailrace has ended with $code, which a restart does not change." >&2
    exit 0
    ;;
esac
exit "$code"
