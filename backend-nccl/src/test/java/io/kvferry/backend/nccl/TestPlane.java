// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.nccl.gpu.GpuDriver;
import io.kvferry.backend.nccl.gpu.NcclDouble;
import io.kvferry.backend.nccl.gpu.NcclDouble.Count;
import io.kvferry.backend.nccl.gpu.NcclDouble.Knob;
import io.kvferry.backend.nccl.gpu.NcclPlane;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.plane.JoinedPlane;

import java.time.Duration;
import java.util.List;

/// The data planes over which whole engines are tested. That of NCCL is over the C double; a test
/// with it is skipped where there is no gcc.
public enum TestPlane {
    HOST {
        @Override
        DataPlane open() {
            return HostPlane.open("test", LOCAL, LOCAL, HostPlane.Ways.ANY);
        }
    },
    NCCL {
        @Override
        public void begin() {
            var nccl = NcclDouble.load();
            nccl.reset();
            nccl.set(Knob.GROUP_POLLS, 1);
        }

        @Override
        DataPlane open() {
            return open(NcclDouble.load().driver());
        }

        @Override
        public void end() {
            var nccl = NcclDouble.load();
            nccl.assertClean();
            assertThat(nccl.count(Count.RECEIVES)).as("operations of NCCL").isPositive();
        }
    };

    private static final String LOCAL = "127.0.0.1";

    /// Of a link's set-up, and of a turn: a peer that dies is heard of before, by its connection.
    private static final Duration LIMIT = Duration.ofSeconds(100);

    /// Before the first of a test is opened.
    public void begin() {}

    abstract DataPlane open();

    /// When all are closed: nothing of the device has stayed.
    public void end() {}

    /// That of NCCL alone, with another driver.
    static DataPlane open(GpuDriver driver) {
        var limits = new NcclPlane.Limits(4 << 10, LIMIT, LIMIT, Duration.ofMillis(50), 0);
        var library = NcclDouble.load().library();
        return new JoinedPlane(
                List.of(NcclPlane.open("test-nccl", LOCAL, LOCAL, library, driver, limits)));
    }
}
