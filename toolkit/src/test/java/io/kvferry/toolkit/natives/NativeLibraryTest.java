// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.natives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.junit.jupiter.api.Test;

import java.lang.foreign.FunctionDescriptor;

class NativeLibraryTest {
    private static NativeLibrary libc() {
        return NativeLibrary.load("libc.so.6", "GNU's C library", "install libc6");
    }

    @Test
    void aLibraryThatIsNotThereIsSaidWithTheReasonAndTheRemedy() {
        assertThatThrownBy(() -> NativeLibrary.load("/nowhere/libx.so", "x", "install x"))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE))
                .hasMessageContainingAll("/nowhere/libx.so", "install x");
    }

    @Test
    void aFunctionIsCalledByItsHandle() throws Throwable {
        assertThat((int) libc().require("abs", JAVA_INT, JAVA_INT).invokeExact(-7)).isEqualTo(7);
    }

    @Test
    void aLibraryWithoutARequiredFunctionIsAnotherProduct() {
        var shape = FunctionDescriptor.ofVoid();
        assertThat(libc().find("kvferry_no_such_function", shape)).isEmpty();
        assertThatThrownBy(() -> libc().require("kvferry_no_such_function", shape))
                .isInstanceOfSatisfying(
                        KvFerryException.class,
                        e -> assertThat(e.code()).isEqualTo(ErrorCode.UNAVAILABLE))
                .hasMessageContainingAll(
                        "libc.so.6 has no function kvferry_no_such_function",
                        "not GNU's C library",
                        "install libc6");
    }
}
