// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.nio.file.Path;

class CatalogTest {
    private static final long BYTES = 4096;

    private final BlockDigest block = BlockKey.of("block").digest();
    private final Catalog catalog = new Catalog(StoreConfig.of(Path.of("unused"), "catalog"));

    @BeforeEach
    void holdsABlock() {
        assertThat(catalog.reserve(BYTES)).isTrue();
        catalog.commit(block, BYTES, 0);
    }

    @Test
    void takesASightedBlockBackOnceItsEvictionIsOver() {
        evict();
        catalog.evicted();
        catalog.sighted(block, BYTES, 1, catalog.lookBegins());
        assertThat(catalog.blocks()).isEqualTo(1);
    }

    @Test
    void forgetsABlockThatWasEvictedAfterTheLookBegan() {
        long look = catalog.lookBegins();
        evict();
        catalog.evicted();
        catalog.sighted(block, BYTES, 1, look);
        assertThat(catalog.blocks()).isZero();
        assertThat(catalog.usedBytes()).isZero();
    }

    @Test
    void forgetsABlockWhoseFileIsAboutToGo() {
        evict();
        long look = catalog.lookBegins();
        catalog.evicted();
        catalog.sighted(block, BYTES, 1, look);
        assertThat(catalog.blocks()).isZero();
    }

    private void evict() {
        assertThat(catalog.evictOldest(new long[4])).isTrue();
    }
}
