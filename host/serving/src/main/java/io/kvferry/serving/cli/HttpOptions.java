// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.http.HttpService;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.secret.FleetSecret;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import picocli.CommandLine.Option;

import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;

/// The options of everything that listens.
final class HttpOptions {
    private static final Logger LOG = LoggerFactory.getLogger(HttpOptions.class);

    @Option(
            names = "--host",
            defaultValue = "127.0.0.1",
            description = "Address to listen on (default: ${DEFAULT-VALUE}).")
    String host = "127.0.0.1";

    @Option(
            names = "--port",
            defaultValue = "8000",
            description = "Port to listen on, 0 for any free one (default: ${DEFAULT-VALUE}).")
    int port = 8000;

    @Option(
            names = "--max-body-bytes",
            defaultValue = "16777216",
            description = "Longest request body (default: ${DEFAULT-VALUE}).")
    int maxBodyBytes = 16 << 20;

    @Option(
            names = "--max-concurrent",
            defaultValue = "1024",
            description = "Most HTTP requests at a time (default: ${DEFAULT-VALUE}).")
    int maxConcurrent = 1024;

    @Option(
            names = "--stop-grace",
            paramLabel = "SECONDS",
            defaultValue = "10",
            description =
                    "How long running requests may go on at the end (default: ${DEFAULT-VALUE}).")
    int stopGraceSeconds = 10;

    @Option(names = "--json", description = "Print the ready line as JSON.")
    boolean json;

    @Option(
            names = "--stop-with-stdin",
            description = "Stop when standard input ends: no orphan when the parent dies.")
    boolean stopWithStdin;

    @Option(
            names = "--secret-file",
            paramLabel = "FILE",
            description =
                    "File with the secret that all processes of the fleet share (default: the one that KVFERRY_SECRET_FILE names).")
    Optional<Path> secretFile = Optional.empty();

    /// The fleet's secret; plugins of this process and its worker processes find the same one.
    Optional<FleetSecret> secret() {
        secretFile.ifPresent(
                file -> System.setProperty(FleetSecret.PROPERTY, file.toAbsolutePath().toString()));
        var secret = FleetSecret.configured();
        secret.map(FleetSecret::warning)
                .filter(warning -> !warning.isEmpty())
                .ifPresent(warning -> LOG.warn("the shared secret: {}", warning));
        return secret;
    }

    HttpService.Settings settings() {
        if (port < 0
                || port > 65_535
                || maxBodyBytes < 1
                || maxConcurrent < 1
                || stopGraceSeconds < 0) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "--port must be in 0 to 65535, --max-body-bytes and --max-concurrent at least 1, --stop-grace at least 0");
        }
        var bind = new InetSocketAddress(host, port);
        if (bind.isUnresolved()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, "--host " + host + " is not a known address");
        }
        return new HttpService.Settings(
                bind, maxBodyBytes, maxConcurrent, Duration.ofSeconds(stopGraceSeconds));
    }
}
