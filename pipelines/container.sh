#!/bin/sh
# Installs the package into an empty Debian: the steps that Dockerfile and apptainer.def share. What they copied is in /source,
# and the argument is what pip is to install for PyTorch.
set -eu
apt-get update
apt-get install --yes --no-install-recommends python3 python3-venv
python3 -m venv /opt/mri-vit
/opt/mri-vit/bin/pip install --no-cache-dir $1 # first and by itself, so that nothing pulls another build of it
/opt/mri-vit/bin/pip install --no-cache-dir --constraint /source/constraints.txt '/source[brain,dicom,excel,serve]'
ln -s /opt/mri-vit/bin/mri-vit /usr/local/bin/mri-vit
useradd --create-home mri-vit
mkdir -p /data
chmod 1777 /home/mri-vit /data # whichever user the container runs as
rm -rf /source /var/lib/apt/lists/*
