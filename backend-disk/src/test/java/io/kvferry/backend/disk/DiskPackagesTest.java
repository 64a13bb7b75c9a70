// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk;

import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAnyPackage;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import static org.assertj.core.api.Assertions.assertThat;

import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;

import org.junit.jupiter.api.Test;

import java.nio.file.Path;
import java.util.List;

/// Holds the arrows between the packages of this module.
class DiskPackagesTest {
    private static final String ROOT = "io.kvferry.backend.disk";

    /// Each uses only those before it.
    private static final List<String> PACKAGES =
            List.of(
                    ROOT + ".file",
                    ROOT + ".block",
                    ROOT + ".store",
                    ROOT + ".kv",
                    ROOT + ".vllm",
                    ROOT);

    private static final JavaClasses CLASSES =
            new ClassFileImporter().importPaths(Path.of("target/classes"));

    @Test
    void noPackageUsesALaterOne() {
        for (int i = 0; i < PACKAGES.size() - 1; i++) {
            noClasses()
                    .that()
                    .resideInAPackage(PACKAGES.get(i))
                    .should()
                    .dependOnClassesThat(
                            resideInAnyPackage(
                                    PACKAGES.subList(i + 1, PACKAGES.size())
                                            .toArray(String[]::new)))
                    .check(CLASSES);
        }
    }

    @Test
    void namesEveryPackage() {
        assertThat(CLASSES.stream().map(JavaClass::getPackageName).distinct())
                .containsExactlyInAnyOrderElementsOf(PACKAGES);
    }
}
