// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReference;

/// Against NVIDIA's own library, on a machine with or without a GPU: what it does there is to say
/// its version, to draw ids, and to refuse a communicator where there is no driver.
@Tag("interop")
class RealNcclTest {
    private static NcclLibrary library() {
        try {
            return NcclLibrary.load();
        } catch (KvFerryException e) {
            return Assumptions.abort(e.getMessage() + "; interop/install-peers nccl (352 MB)");
        }
    }

    @Test
    void saysItsVersion() {
        assertThat(library().version()).isGreaterThanOrEqualTo(21800);
    }

    @Test
    void drawsIdsThatDiffer() {
        var library = library();
        byte[] one = library.uniqueId();
        assertThat(one).hasSize(128);
        assertThat(Arrays.equals(one, library.uniqueId())).isFalse();
    }

    /// The by-value id and the configuration reach it: what it says is about the driver.
    @Test
    void refusesACommunicatorWithoutADriver() {
        var library = library();
        Assumptions.assumeFalse(Files.exists(Path.of("/dev/nvidia0")), "this machine has a GPU");
        assertThatThrownBy(
                        () -> {
                            var communicator =
                                    Communicator.begin(
                                            library,
                                            library.uniqueId(),
                                            0,
                                            2,
                                            new AtomicReference<>());
                            try {
                                for (int i = 0; i < 1000 && !communicator.ready(); i++) {
                                    Thread.sleep(10);
                                }
                            } finally {
                                communicator.abort();
                            }
                        })
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("unhandled cuda error");
    }
}
