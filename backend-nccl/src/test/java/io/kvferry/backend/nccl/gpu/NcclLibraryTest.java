// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.lang.foreign.MemoryLayout;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicReference;

class NcclLibraryTest {
    /// Offsets as gcc lays out `nccl.h` of 2.27.3.
    @Test
    void theConfigurationIsLaidOutAsInTheHeader() {
        var layout = NcclLibrary.CONFIG;
        assertThat(layout.byteSize()).isEqualTo(72);
        assertThat(NcclLibrary.ID.byteSize()).isEqualTo(128);
        var names =
                new String[] {
                    "blocking", "maxCTAs", "netName", "trafficClass", "commName", "nvlsCTAs"
                };
        long[] offsets = {16, 28, 32, 44, 48, 68};
        for (int i = 0; i < names.length; i++) {
            assertThat(layout.byteOffset(MemoryLayout.PathElement.groupElement(names[i])))
                    .as(names[i])
                    .isEqualTo(offsets[i]);
        }
    }

    @Test
    void anOlderLibraryGetsTheShorterConfigurationAndATooOldOneIsRefused() {
        var nccl = NcclDouble.load();
        nccl.reset();
        nccl.set(Knob.VERSION, 21903);
        var older = NcclLibrary.load(nccl.file());
        assertThat(older.versionText()).isEqualTo("2.19.3");
        var communicator =
                Communicator.begin(older, older.uniqueId(), 0, 4, new AtomicReference<>());
        assertThat(communicator.ready()).as("alone it stays in progress").isFalse();
        communicator.abort();
        assertThat(nccl.misuse()).isEmpty();
        nccl.set(Knob.VERSION, 21701);
        assertThatThrownBy(() -> NcclLibrary.load(nccl.file()))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE))
                .hasMessageContaining("2.17.1");
        nccl.set(Knob.VERSION, 0);
    }

    @Test
    void aLibraryThatIsNotThereIsSaidWithTheWayToGetIt() {
        assertThatThrownBy(() -> NcclLibrary.load(Path.of("/nowhere/libnccl.so.2")))
                .isInstanceOf(KvFerryException.class)
                .hasMessageContaining("nvidia-nccl-cu12");
    }
}
