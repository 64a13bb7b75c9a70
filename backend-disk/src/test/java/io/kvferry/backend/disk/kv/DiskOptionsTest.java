// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.kv;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.disk.store.StoreConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

class DiskOptionsTest {
    private static final CacheNamespace NAMESPACE =
            new CacheNamespace("m", "test", DType.FLOAT32, KvLayout.LBNHC, 1, 4, 1, 1, "");

    @TempDir Path folder;

    @Test
    void evictionStopsWhereItStartsUnlessToldOtherwise() {
        assertThat(space(Map.of("high_watermark", 0.9)))
                .returns(0.9, space -> space.lowWatermark())
                .returns(0.9, space -> space.highWatermark());
        assertThat(space(Map.of("high_watermark", 0.9, "low_watermark", 0.5)))
                .returns(0.5, space -> space.lowWatermark());
        assertThat(space(Map.of())).returns(1.0, space -> space.lowWatermark());
    }

    private StoreConfig.Space space(Map<String, Object> watermarks) {
        var given = new HashMap<>(watermarks);
        given.put("path", folder.toString());
        var options = DiskOptions.SCHEMA.read("test", given);
        return DiskOptions.schedulerStore(options, NAMESPACE, KvRole.BOTH).space();
    }
}
