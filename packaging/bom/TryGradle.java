// SPDX-License-Identifier: Apache-2.0
import org.gradle.api.Project;
import org.gradle.testfixtures.ProjectBuilder;

import java.io.File;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Resolves the README's Gradle lines with Gradle's own code: TryGradle FOLDER-WITH-lines.gradle
 * LOCAL-REPOSITORY.
 */
public class TryGradle {
    public static void main(String[] args) {
        try {
            var folder = new File(args[0]);
            Project project = ProjectBuilder.builder().withProjectDir(folder).build();
            project.getPluginManager().apply("java");
            project.getRepositories().maven(each -> each.setUrl(new File(args[1]).toURI()));
            project.getRepositories().mavenCentral();
            project.apply(Map.of("from", new File(folder, "lines.gradle")));
            for (var name :
                    new String[] {
                        "compileClasspath", "testCompileClasspath", "testRuntimeClasspath"
                    }) {
                var files = project.getConfigurations().getByName(name).getFiles();
                System.out.println(
                        name
                                + " "
                                + files.stream()
                                        .map(File::toString)
                                        .collect(Collectors.joining(File.pathSeparator)));
            }
            System.exit(0);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(1); // Gradle's threads would keep it alive
        }
    }
}
