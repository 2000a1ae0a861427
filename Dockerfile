# Two stages: the first compiles the wheel, the second installs it without a compiler.
#   docker build -t octavo .
#   docker run --rm -p 8000:8000 -v octavo-models:/models octavo
FROM python:3.12-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++=4:12.2.0-* \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/octavo-*.whl)[grammars]" \
    && useradd --create-home --uid 1000 octavo \
    && install --directory --owner octavo /models
USER 1000
WORKDIR /home/octavo
# Models live in a volume: a new container does not fetch them again.
ENV OCTAVO_CACHE=/models HF_HOME=/models/hub
VOLUME /models
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# Inside a container the loopback address cannot be reached; what the container publishes is the user's choice.
ENTRYPOINT ["octavo"]
CMD ["serve", "--host", "0.0.0.0"]
