// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.JdkSslContext;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;

import org.jspecify.annotations.Nullable;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;

/// TLS from PEM files, named as vLLM's options name them.
///
/// @param certificate `--ssl-certfile`: this process's certificate, with its chain
/// @param key `--ssl-keyfile`: its private key, PKCS#8 without password
/// @param authorities `--ssl-ca-certs`: who signs the certificates of clients and of instances; the
///   JDK's authorities where it is absent
/// @param clientCertificates `--ssl-cert-reqs`: 0 asks clients for no certificate, 1 checks one
///   that is there, 2 wants one
public record Tls(
        Optional<Path> certificate,
        Optional<Path> key,
        Optional<Path> authorities,
        int clientCertificates) {
    public Tls {
        if (certificate.isPresent() != key.isPresent()) {
            throw bad("--ssl-certfile and --ssl-keyfile go together", null);
        }
        if (clientCertificates < 0 || clientCertificates > 2) {
            throw bad("--ssl-cert-reqs must be 0, 1 or 2, got " + clientCertificates, null);
        }
        if (clientCertificates > 0 && (authorities.isEmpty() || certificate.isEmpty())) {
            throw bad("--ssl-cert-reqs needs --ssl-ca-certs and --ssl-certfile", null);
        }
        check("--ssl-certfile", certificate);
        check("--ssl-keyfile", key);
        check("--ssl-ca-certs", authorities);
    }

    private static void check(String option, Optional<Path> file) {
        if (file.isPresent() && !Files.isReadable(file.get())) {
            throw bad(option + ": cannot read " + file.get(), null);
        }
    }

    /// For what listens; empty without a certificate.
    ///
    /// @throws KvFerryException BAD_CONFIG when a file holds something else than it should
    public Optional<SslContext> server() {
        if (certificate.isEmpty()) {
            return Optional.empty();
        }
        try {
            var builder =
                    SslContextBuilder.forServer(
                                    certificate.get().toFile(), key.orElseThrow().toFile())
                            .sslProvider(SslProvider.JDK);
            authorities.ifPresent(file -> builder.trustManager(file.toFile()));
            builder.clientAuth(
                    switch (clientCertificates) {
                        case 1 -> ClientAuth.OPTIONAL;
                        case 2 -> ClientAuth.REQUIRE;
                        default -> ClientAuth.NONE;
                    });
            return Optional.of(builder.build());
        } catch (SSLException | IllegalArgumentException e) {
            throw bad("--ssl-certfile, --ssl-keyfile: " + e.getMessage(), e);
        }
    }

    /// For what connects to instances: presents the certificate where there is one.
    ///
    /// @throws KvFerryException BAD_CONFIG when a file holds something else than it should
    public SSLContext client() {
        try {
            var builder = SslContextBuilder.forClient().sslProvider(SslProvider.JDK);
            authorities.ifPresent(file -> builder.trustManager(file.toFile()));
            if (certificate.isPresent()) {
                builder.keyManager(certificate.get().toFile(), key.orElseThrow().toFile());
            }
            return ((JdkSslContext) builder.build()).context();
        } catch (SSLException | IllegalArgumentException e) {
            throw bad("--ssl-ca-certs: " + e.getMessage(), e);
        }
    }

    private static KvFerryException bad(String message, @Nullable Throwable cause) {
        return cause == null
                ? new KvFerryException(ErrorCode.BAD_CONFIG, message)
                : new KvFerryException(ErrorCode.BAD_CONFIG, message, cause);
    }
}
