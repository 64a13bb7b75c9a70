// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.nio.file.Path;

/// What a plugin author has to read must not grow by accident: whoever raises a number here has
/// looked for something that can go instead.
class ContractSizeTest {
    private static ContractSize size() throws Exception {
        var code = EngineInfo.class.getProtectionDomain().getCodeSource().getLocation();
        return ContractSize.of(Path.of(code.toURI()));
    }

    @Test
    void hasNoMoreTypesThanWereAgreed() throws Exception {
        var types = size().types();
        assertThat(types).hasSizeLessThanOrEqualTo(80);
        assertThat(types)
                .filteredOn(type -> type.startsWith("io.kvferry.spi.kv."))
                .hasSizeLessThanOrEqualTo(22);
    }

    /// 286 were there before the host's services, commands and findings came in.
    @Test
    void hasFewerMethodsThanBeforeTheContractsWereSettled() throws Exception {
        var methods = size().methods().values().stream().flatMap(all -> all.stream()).toList();
        assertThat(methods).hasSizeLessThan(286);
    }
}
