// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.secret;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;

/// The fleet's secret, its keys and its signatures.
class FleetSecretTest {
    private static final String TEXT = "0123456789abcdef0123456789abcdef";

    @TempDir Path folder;

    private FleetSecret secret(String text) throws IOException {
        return FleetSecret.read(file(text, "rw-------"));
    }

    private Path file(String text, String mode) throws IOException {
        var file = Files.createTempFile(folder, "secret", "");
        Files.writeString(file, text);
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(mode));
        return file;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Test
    void derivesTheSameKeyInEveryProcessAndAnotherForEachPurpose() throws IOException {
        var one = secret(TEXT);
        var other = secret(TEXT + "\n");
        assertThat(one.keyFor("a"))
                .hasSize(FleetSecret.KEY_BYTES)
                .isEqualTo(other.keyFor("a"))
                .isNotEqualTo(one.keyFor("b"))
                .isNotEqualTo(secret(TEXT + "!").keyFor("a"));
    }

    @Test
    void tagsTellPartsApart() throws IOException {
        var secret = secret(TEXT);
        var tag = secret.tag("p", bytes("ab"), bytes("c"));
        assertThat(secret.verifies(tag, "p", bytes("ab"), bytes("c"))).isTrue();
        assertThat(secret.verifies(tag, "p", bytes("a"), bytes("bc"))).isFalse();
        assertThat(secret.verifies(tag, "q", bytes("ab"), bytes("c"))).isFalse();
        assertThat(secret.verifies(Arrays.copyOf(tag, 16), "p", bytes("ab"), bytes("c"))).isFalse();
    }

    @Test
    void refusesFilesThatAreNoSecret() throws IOException {
        assertThatThrownBy(() -> secret("short\n"))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("16 to 4096 bytes")
                .hasMessageContaining("5");
        assertThatThrownBy(() -> secret("x".repeat(5000)))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("more");
        assertThatThrownBy(() -> FleetSecret.read(folder.resolve("missing")))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("no such file");
        assertThatThrownBy(() -> FleetSecret.read(file(TEXT, "rw-rw-rw-")))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("may change it");
    }

    @Test
    void warnsOfAFileThatEverybodyReads() throws IOException {
        assertThat(secret(TEXT).warning()).isEmpty();
        assertThat(FleetSecret.read(file(TEXT, "rw-r--r--")).warning()).contains("chmod 600");
    }

    @Test
    void neverShowsTheSecret() throws IOException {
        assertThat(secret(TEXT).toString()).doesNotContain(TEXT);
    }

    @Test
    void signsARequestAsItIs() throws IOException {
        var secret = secret(TEXT);
        var body = bytes("{}");
        var value = HttpSignature.sign(secret, "POST", "/v1/completions", body);
        assertThat(HttpSignature.verifies(secret, value, "POST", "/v1/completions", body)).isTrue();
        assertThat(HttpSignature.verifies(secret, value, "PUT", "/v1/completions", body)).isFalse();
        assertThat(HttpSignature.verifies(secret, value, "POST", "/v1/models", body)).isFalse();
        assertThat(HttpSignature.verifies(secret, value, "POST", "/v1/completions", bytes("{} ")))
                .isFalse();
        assertThat(
                        HttpSignature.verifies(
                                secret(TEXT + "2"), value, "POST", "/v1/completions", body))
                .isFalse();
    }

    @Test
    void signsHeadersOnRequest() throws IOException {
        var secret = secret(TEXT);
        var body = bytes("{}");
        var value = HttpSignature.sign(secret, "POST", "/q", body, "id-1", "");
        assertThat(HttpSignature.verifies(secret, value, "POST", "/q", body, "id-1", "")).isTrue();
        for (var headers :
                new String[][] {{}, {"id-1"}, {"id-2", ""}, {"", "id-1"}, {"id-", "1"}}) {
            assertThat(HttpSignature.verifies(secret, value, "POST", "/q", body, headers))
                    .isFalse();
        }
    }

    @Test
    void refusesOldAndMalformedSignatures() throws IOException {
        var secret = secret(TEXT);
        long now = System.currentTimeMillis();
        for (long far : new long[] {-600_000, 600_000}) {
            var value = HttpSignature.sign(secret, "GET", "/q", new byte[0], now + far);
            assertThat(HttpSignature.verifies(secret, value, "GET", "/q", new byte[0])).isFalse();
        }
        for (var value : new String[] {"", "..", "1.2.3", "x".repeat(200)}) {
            assertThat(HttpSignature.verifies(secret, value, "GET", "/q", new byte[0])).isFalse();
        }
    }
}
