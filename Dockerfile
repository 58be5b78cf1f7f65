# For a CPU:            docker build -t mri-vit .
# For an NVIDIA GPU:    docker build -t mri-vit --build-arg TORCH=torch==2.13.0 .     (and run it with --gpus all)
# In a study's folder:  docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/data" mri-vit run study.toml
FROM debian:bookworm-slim
ARG TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
COPY constraints.txt pyproject.toml README.md LICENSE pipelines/container.sh /source/
COPY mri_vit /source/mri_vit
RUN sh /source/container.sh "$TORCH"
ENV HOME=/home/mri-vit
ENV LANG=C.UTF-8
USER mri-vit
WORKDIR /data
ENTRYPOINT ["mri-vit"]
