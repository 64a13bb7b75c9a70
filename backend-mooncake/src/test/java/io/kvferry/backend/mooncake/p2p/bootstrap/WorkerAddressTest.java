// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.List;

class WorkerAddressTest {
    private static void assertOne(String... spellings) {
        assertThat(List.of(spellings).stream().map(WorkerAddress::canonical).distinct()).hasSize(1);
    }

    @Test
    void spellingsOfOneAddressAreOne() {
        assertOne(
                "tcp://127.0.0.1:5",
                "tcp://127.0.0.1:005",
                "tcp://127.0.0.1:5/",
                "tcp://localhost:5",
                "tcp://LocalHost.:5",
                "tcp://[::1]:5",
                "tcp://[0:0:0:0:0:0:0:1]:5",
                "tcp://[::ffff:127.0.0.1]:5",
                "tcp://0.0.0.0:5");
        assertOne("tcp://Node-1.example:5", "tcp://node-1.EXAMPLE.:5", "tcp://x@node-1.example:5");
        assertOne("tcp://10.0.0.1:5", "tcp://[::ffff:a00:1]:5");
        assertOne("tcp://[FE80::A]:5", "tcp://[fe80:0::a]:5", "tcp://[fe80::a%eth0]:5");
    }

    @Test
    void othersAreNot() {
        assertThat(
                        List.of(
                                        "tcp://127.0.0.1:5",
                                        "tcp://127.0.0.1:6",
                                        "tcp://127.0.0.2:5",
                                        "tcp://10.0.0.1:5",
                                        "tcp://node-1:5",
                                        "tcp://node-2:5",
                                        "tcp://[fe80::a]:5",
                                        "tcp://no_host:5",
                                        "no address",
                                        "")
                                .stream()
                                .map(WorkerAddress::canonical))
                .doesNotHaveDuplicates();
    }
}
