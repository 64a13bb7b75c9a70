// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.importer.ClassFileImporter;

import org.junit.jupiter.api.Test;

import java.nio.file.Path;

/// What the demo may use of kvferry. `ModuleArrowsTest` of `host/serving` runs before this module
/// is compiled in a fresh clone.
class DemoArrowsTest {
    @Test
    void usesOnlyWhatTheDesignAllows() {
        var demo = new ClassFileImporter().importPath(Path.of("target/classes"));
        noClasses()
                .that()
                .resideInAPackage("io.kvferry.demo..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage(
                        "io.kvferry.backend..",
                        "io.kvferry.multiconnector..",
                        "io.kvferry.runner..",
                        "io.kvferry.tck..")
                .check(demo);
        classes().should().resideInAPackage("io.kvferry.demo..").check(demo);
    }
}
