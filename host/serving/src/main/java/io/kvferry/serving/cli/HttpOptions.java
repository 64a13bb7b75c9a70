// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.serving.http.HttpLimits;
import io.kvferry.serving.http.HttpService;
import io.kvferry.serving.http.Tls;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.HostNames;
import io.kvferry.toolkit.secret.FleetSecret;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import picocli.CommandLine.Option;

import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;

/// Options of commands that listen for HTTP: addresses, limits, keys, certificates.
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
            description = "Longest request body, in bytes (default: ${DEFAULT-VALUE}).")
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

    @Option(
            names = "--api-key",
            paramLabel = "KEY",
            defaultValue = "${env:KVFERRY_API_KEY:-}",
            description =
                    "Key that clients must send as bearer token (default: KVFERRY_API_KEY; a key on the command line is visible to every user of the host).")
    String apiKey = "";

    @Option(names = "--ssl-keyfile", paramLabel = "PEM", description = "Private key, PKCS#8.")
    Optional<Path> keyFile = Optional.empty();

    @Option(names = "--ssl-certfile", paramLabel = "PEM", description = "Certificate and chain.")
    Optional<Path> certFile = Optional.empty();

    @Option(
            names = "--ssl-ca-certs",
            paramLabel = "PEM",
            description =
                    "Authorities that sign the certificates of clients, and for a router those of the instances (default: the JDK's).")
    Optional<Path> caCerts = Optional.empty();

    @Option(
            names = "--ssl-cert-reqs",
            paramLabel = "0|1|2",
            defaultValue = "0",
            description =
                    "Certificates of clients: 0 none, 1 checked, 2 wanted (default: ${DEFAULT-VALUE}).")
    int certReqs;

    @Option(
            names = "--admin-port",
            paramLabel = "PORT",
            description =
                    "Serve /metrics, /health and, with serve, /reset_prefix_cache on a port of their own, and but for /health there only (default: with the API).")
    Optional<Integer> adminPort = Optional.empty();

    @Option(
            names = "--admin-host",
            paramLabel = "ADDRESS",
            defaultValue = "127.0.0.1",
            description = "Address of --admin-port (default: ${DEFAULT-VALUE}).")
    String adminHost = "127.0.0.1";

    @Option(
            names = "--max-connections",
            defaultValue = "4096",
            description = "Most connections at a time (default: ${DEFAULT-VALUE}).")
    int maxConnections = 4096;

    Tls tls() {
        return new Tls(certFile, keyFile, caCerts, certReqs);
    }

    /// The address of `/metrics` where it differs from that of the API.
    Optional<InetSocketAddress> admin() {
        return adminPort.map(port -> address("--admin-host", adminHost, "--admin-port", port));
    }

    /// Warns when other hosts can use the API without a key.
    private void warnWithoutKey(InetSocketAddress bind) {
        if (!bind.getAddress().isLoopbackAddress() && apiKey.isEmpty()) {
            LOG.warn(
                    "listening on {} without --api-key: everybody who can connect to it can use the model",
                    bind);
        }
    }

    private static InetSocketAddress address(
            String option, String host, String portOption, int port) {
        if (port < 0 || port > 65_535) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, portOption + " must be in 0 to 65535, got " + port);
        }
        var address = HostNames.SYSTEM.socketAddress(host, port);
        if (address.isUnresolved()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, option + " " + host + " is not a known address");
        }
        return address;
    }

    /// The fleet's shared secret. Plugins and worker processes of this process read the same file.
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
        atLeast("--max-body-bytes", maxBodyBytes, 1);
        atLeast("--max-connections", maxConnections, 1);
        atLeast("--max-concurrent", maxConcurrent, 1);
        atLeast("--stop-grace", stopGraceSeconds, 0);
        if (adminPort.isPresent() && port != 0 && adminPort.get() == port) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "--admin-port and --port are both " + port + "; give them different ports");
        }
        var bind = address("--host", host, "--port", port);
        warnWithoutKey(bind);
        admin().ifPresent(HttpOptions::warnOfOpenMetrics);
        return new HttpService.Settings(
                bind,
                maxBodyBytes,
                maxConcurrent,
                Duration.ofSeconds(stopGraceSeconds),
                HttpLimits.defaults().withConnections(maxConnections),
                apiKey,
                tls().server());
    }

    /// @throws KvFerryException BAD_CONFIG when `value` is too small
    static int atLeast(String option, int value, int least) {
        if (value < least) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG, option + " must be at least " + least + ", got " + value);
        }
        return value;
    }

    /// Warns when other hosts can read the metrics, which need no key.
    private static void warnOfOpenMetrics(InetSocketAddress bind) {
        if (!bind.getAddress().isLoopbackAddress()) {
            LOG.warn("metrics can be read by everybody who can connect to {}", bind);
        }
    }
}
