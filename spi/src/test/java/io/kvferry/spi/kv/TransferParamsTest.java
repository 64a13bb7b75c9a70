// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.kv;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

class TransferParamsTest {
    @Test
    void readsJsonValues() {
        var params =
                new TransferParams(
                        Map.of(
                                "flag",
                                true,
                                "text",
                                "t",
                                "whole",
                                5,
                                "real",
                                0.5,
                                "list",
                                List.of(1, "b"),
                                "child",
                                Map.of("k", 2)));
        assertThat(params.flag("flag")).isTrue();
        assertThat(params.flag("absent")).isFalse();
        assertThat(params.string("text")).contains("t");
        assertThat(params.integer("whole")).contains(5L);
        assertThat(params.list("list").orElseThrow()).isEqualTo(List.of(1L, "b"));
        assertThat(params.values().get("child")).isEqualTo(Map.of("k", 2L));
    }

    @Test
    void nullMeansAbsent() {
        var values = new HashMap<String, Object>();
        values.put("remote_engine_id", null);
        assertThat(new TransferParams(values).string("remote_engine_id")).isEmpty();
        assertThat(new TransferParams(values).values()).isEmpty();
    }

    @Test
    void refusesOtherShapesAsTheClientsFault() {
        var params = new TransferParams(Map.of("x", "1"));
        assertThatThrownBy(() -> params.integer("x"))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.INVALID_REQUEST))
                .hasMessageContaining("kv_transfer_params.x");
        assertThatThrownBy(() -> params.flag("x")).isInstanceOf(KvFerryException.class);
        assertThatThrownBy(() -> params.list("x")).isInstanceOf(KvFerryException.class);
    }

    @Test
    void refusesWhatJsonCannotCarry() {
        assertThatThrownBy(() -> new TransferParams(Map.of("x", new byte[1])))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new TransferParams(Map.of("x", List.of(new Object()))))
                .isInstanceOf(IllegalArgumentException.class);
        assertThatThrownBy(() -> new TransferParams(Map.of("x", Arrays.asList("a", null))))
                .isInstanceOf(NullPointerException.class);
    }

    @Test
    void copiesDeeplyAndNeverChanges() {
        var list = new ArrayList<Object>(List.of(1L));
        var params = new TransferParams(Map.of("list", list));
        list.add(2L);
        assertThat(params.list("list").orElseThrow()).hasSize(1);
        assertThat(params).isEqualTo(new TransferParams(Map.of("list", List.of(1))));
    }
}
