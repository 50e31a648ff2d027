#!/usr/bin/env bash
# Installs moto, which acts as an object store, and boto3, a client of one, into a folder of their own; or other
# packages.
#
#     tools/moto.sh FOLDER [PACKAGE...]
#
# Prints the Python that runs them, with PYTHONPATH=FOLDER. Needs pip (tools/need.sh test), and the network the
# first time.
set -euo pipefail
wanted=('moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5 boto3==1.44.8)
folder="$(realpath -m "$1")"
shift
if [ $# -gt 0 ]; then wanted=("$@"); fi
python=
for found in python3 /usr/bin/python3; do
  if "$found" -c 'import pip' 2>/dev/null; then
    python="$found"
    break
  fi
done
if [ -z "$python" ]; then
  echo "moto: no python3 with pip; to install it: tools/need.sh test" >&2
  exit 1
fi
# One at a time: tests run side by side.
mkdir -p "${folder%/*}"
exec 9>"$folder.lock"
flock 9
made="$folder/made-of"
is="$("$python" -V) ${wanted[*]}"
if [ "$(cat "$made" 2>/dev/null)" != "$is" ]; then
  rm -rf "$folder"
  "$python" -m pip install -q --no-input --disable-pip-version-check --root-user-action=ignore --target "$folder" "${wanted[@]}" >&2
  echo "$is" >"$made"
fi
echo "$python"
