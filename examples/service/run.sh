#!/bin/sh
# Runs a pipeline for a supervisor that restarts after every failure. After a code that a restart does not change it
# ends with 0, so that the container stays stopped; the log has the error.

stopped=
early=
# until the number of the process is known
trap 'early=1' TERM INT
tailrace run "$@" &
run=$!
trap 'stopped=1; kill -TERM "$run"' TERM INT
if [ -n "$early" ]; then
  stopped=1
  kill -TERM "$run"
fi
wait "$run"
code=$?
# a signal ends a wait before the run has ended
while [ -n "$stopped" ] && [ "$code" -gt 128 ]; do
  stopped=
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
