// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import io.kvferry.backend.mooncake.p2p.testkit.BackendHosts;
import io.kvferry.multiconnector.Kvferry;
import io.kvferry.spi.HostServices;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/// The connector contract with the bytes moved by a transfer agent of the host, over MOONCAKE.
class HostBackendsTckTest extends MooncakeConnectorTckTest {
    private static Optional<Kvferry> kvferry = Optional.empty();

    @BeforeAll
    static void openHost() {
        kvferry = Optional.of(BackendHosts.agent());
    }

    @AfterAll
    static void closeHost() {
        kvferry.ifPresent(Kvferry::close);
    }

    @Override
    protected HostServices host() {
        return kvferry.orElseThrow().services();
    }

    @Override
    protected Map<String, Object> options() {
        var all = new HashMap<>(super.options());
        all.put("transfer_backends", List.of("MOONCAKE"));
        return all;
    }
}
