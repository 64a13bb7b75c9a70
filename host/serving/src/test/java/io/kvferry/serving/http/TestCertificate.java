// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.Base64;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// A self-signed certificate of 127.0.0.1 and its key, as PEM files.
public record TestCertificate(Path certificate, Path key) {
    /// Makes both in a folder.
    public static TestCertificate make(Path folder) throws Exception {
        var store = folder.resolve("store.p12");
        var keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
        var made =
                new ProcessBuilder(
                                keytool,
                                "-genkeypair",
                                "-alias",
                                "k",
                                "-keyalg",
                                "EC",
                                "-dname",
                                "CN=localhost",
                                "-ext",
                                "SAN=IP:127.0.0.1",
                                "-storetype",
                                "PKCS12",
                                "-keystore",
                                store.toString(),
                                "-storepass",
                                "secret")
                        .redirectErrorStream(true)
                        .start();
        assertThat(made.waitFor(60, TimeUnit.SECONDS)).isTrue();
        var keys = KeyStore.getInstance(store.toFile(), "secret".toCharArray());
        var certificate = keys.getCertificate("k").getEncoded();
        var key = keys.getKey("k", "secret".toCharArray()).getEncoded();
        return new TestCertificate(
                pem(folder.resolve("cert.pem"), "CERTIFICATE", certificate),
                pem(folder.resolve("key.pem"), "PRIVATE KEY", key));
    }

    /// TLS with this certificate, which is its own authority.
    public Tls tls() {
        return new Tls(Optional.of(certificate), Optional.of(key), Optional.of(certificate), 0);
    }

    private static Path pem(Path file, String kind, byte[] content) throws IOException {
        var text =
                "-----BEGIN "
                        + kind
                        + "-----\n"
                        + Base64.getMimeEncoder().encodeToString(content)
                        + "\n-----END "
                        + kind
                        + "-----\n";
        return Files.writeString(file, text);
    }
}
