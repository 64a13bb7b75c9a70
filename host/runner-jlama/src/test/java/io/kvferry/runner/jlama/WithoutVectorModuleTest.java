// SPDX-License-Identifier: Apache-2.0
package io.kvferry.runner.jlama;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.OptionSchema;

import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Map;
import java.util.ServiceLoader;

/// A JVM that was started without the flag Jlama needs.
class WithoutVectorModuleTest {
    /// What a host does: list the plugins, then open the one that was asked for.
    public static final class Host {
        private Host() {}

        public static void main(String[] args) {
            for (ModelRunnerProvider provider : ServiceLoader.load(ModelRunnerProvider.class)) {
                if (provider.name().equals("jlama")) {
                    System.out.println(provider.description() + " " + provider.availability());
                    try {
                        provider.open(
                                new ModelSource(
                                        Path.of("none"), OptionSchema.NONE.read("test", Map.of())));
                    } catch (KvFerryException e) {
                        System.out.println(e.code() + " " + e.getMessage());
                    }
                }
            }
        }
    }

    @Test
    void saysWhichFlagIsMissing() throws Exception {
        Process process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-cp",
                                System.getProperty("java.class.path"),
                                Host.class.getName())
                        .redirectErrorStream(true)
                        .start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor()).as(output).isZero();
        assertThat(output)
                .contains(
                        "Unavailable[reason=this JVM runs without the module jdk.incubator.vector")
                .contains(
                        "UNAVAILABLE runner jlama: this JVM runs without the module jdk.incubator.vector; "
                                + "add --add-modules jdk.incubator.vector to the java command line")
                .doesNotContain("NoClassDefFoundError");
    }
}
