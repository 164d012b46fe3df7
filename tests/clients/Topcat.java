// TOPCAT as its users have it, on a display: opens its TAP window, looks at a service, asks a query, loads the result, and writes a picture of
// the window. Writes what it sees, a line for each: the tables of the service, the rows and the columns of the result. With a user and a password it
// waits until it is asked for them.
//
//     java -cp topcat.jar Topcat.java SERVICE QUERY PICTURE [USER PASSWORD]

import java.awt.Component;
import java.awt.Container;
import java.awt.Graphics2D;
import java.awt.Window;
import java.awt.image.BufferedImage;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.function.Predicate;
import javax.imageio.ImageIO;
import javax.swing.JButton;
import javax.swing.JLabel;
import javax.swing.JList;
import javax.swing.JPasswordField;
import javax.swing.JTabbedPane;
import javax.swing.JTextArea;
import javax.swing.JTextField;
import javax.swing.JTree;
import javax.swing.SwingUtilities;
import javax.swing.text.JTextComponent;
import uk.ac.starlink.table.StarTable;
import uk.ac.starlink.topcat.ControlWindow;
import uk.ac.starlink.topcat.Driver;
import uk.ac.starlink.topcat.TopcatModel;
import uk.ac.starlink.vo.TapTableLoadDialog;

public class Topcat {
    private static final long PATIENCE_MS = 120_000;

    public static void main(String[] arguments) throws Exception {
        String service = arguments[0];
        String query = arguments[1];
        File picture = new File(arguments[2]);
        Driver.main(new String[0]);
        ControlWindow control = await("the control window", () -> {
            ControlWindow window = ControlWindow.getInstance(false);
            return window != null && window.isShowing() ? window : null;
        });
        onEventThread(() -> {
            control.getLoadWindow().getDialogAction(TapTableLoadDialog.class).actionPerformed(null);
            return null;
        });
        Window tap = await("the TAP window", () -> windowWith("Use Service"));
        JButton use = await("its button", () -> button(tap, "Use Service"));
        JTextField address = await("the address", () -> first(tap, JTextField.class, field -> isBeside(field, "TAP URL")));
        onEventThread(() -> {
            address.setText(service);
            use.doClick();
            return null;
        });
        if (arguments.length > 4) {
            logIn(arguments[3], arguments[4]);
        }
        JTree tables = await("the tables of the service", () -> first(tap, JTree.class, tree -> tree.isShowing() && tree.getRowCount() > 1));
        System.out.println("TABLES " + (tables.getRowCount() - 1));
        JTextArea adql = await("the place of the query", () -> first(tap, JTextArea.class, area -> area.isShowing() && area.isEditable()));
        onEventThread(() -> {
            for (int row = tables.getRowCount() - 1; row >= 0; row--) {
                tables.expandRow(row);
            }
            // The last one, and what its columns are.
            tables.setSelectionRow(tables.getRowCount() - 1);
            adql.setText(query);
            return null;
        });
        onEventThread(() -> {
            JTabbedPane parts = first(tap, JTabbedPane.class, tabs -> tabs.indexOfTab("Columns") >= 0);
            if (parts != null) {
                parts.setSelectedIndex(parts.indexOfTab("Columns"));
            }
            return null;
        });
        JButton run = await("the button that runs the query", () -> {
            JButton found = button(tap, "Run Query");
            return found != null && found.isEnabled() ? found : null;
        });
        // What the table has is shown in another part of the window, when it has come.
        Thread.sleep(2_000);
        paint(tap, picture);
        onEventThread(() -> {
            run.doClick();
            return null;
        });
        StarTable table = await("the result", () -> {
            JList<?> loaded = first(control, JList.class, list -> list.getModel().getSize() > 0 && list.getModel().getElementAt(0) instanceof TopcatModel);
            return loaded == null ? null : ((TopcatModel) loaded.getModel().getElementAt(0)).getDataModel();
        });
        System.out.println("ROWS " + table.getRowCount());
        for (int column = 0; column < table.getColumnCount(); column++) {
            System.out.println("COLUMN " + table.getColumnInfo(column).getName() + " " + table.getColumnInfo(column).getUnitString());
        }
        System.exit(0);
    }

    /** Answers the question for a user and a password. */
    private static void logIn(String user, String password) throws Exception {
        JPasswordField secret = await("a question for a password", () -> {
            for (Window window : Window.getWindows()) {
                JPasswordField found = window.isShowing() ? first(window, JPasswordField.class, field -> field.isShowing()) : null;
                if (found != null) {
                    return found;
                }
            }
            return null;
        });
        onEventThread(() -> {
            Window asking = SwingUtilities.getWindowAncestor(secret);
            System.out.println("LOGIN");
            first(asking, JTextField.class, field -> field != secret && field.isEditable()).setText(user);
            secret.setText(password);
            button(asking, "OK").doClick();
            return null;
        });
    }

    /** What something gives as soon as it gives anything. */
    private static <T> T await(String what, Callable<T> look) throws Exception {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < until) {
            T found = onEventThread(look);
            if (found != null) {
                return found;
            }
            Thread.sleep(100);
        }
        for (Window window : Window.getWindows()) {
            for (JTextComponent text : all(window, JTextComponent.class)) {
                if (window.isShowing() && !text.getText().isBlank()) {
                    System.err.println(window.getClass().getName() + ": " + text.getText().strip());
                }
            }
        }
        System.err.println("TOPCAT does not show " + what);
        System.exit(1);
        return null;
    }

    private static <T> T onEventThread(Callable<T> work) throws Exception {
        FutureTask<T> task = new FutureTask<>(work);
        SwingUtilities.invokeLater(task);
        return task.get();
    }

    private static Window windowWith(String label) {
        for (Window window : Window.getWindows()) {
            if (window.isShowing() && button(window, label) != null) {
                return window;
            }
        }
        return null;
    }

    private static JButton button(Container within, String label) {
        return first(within, JButton.class, button -> label.equals(button.getText()));
    }

    /** Whether a field stands in the same row as a label. */
    private static boolean isBeside(JTextField field, String label) {
        for (Container above = field.getParent(); above != null; above = above.getParent()) {
            for (Component component : above.getComponents()) {
                if (component instanceof JLabel && String.valueOf(((JLabel) component).getText()).contains(label)) {
                    return true;
                }
            }
        }
        return false;
    }

    private static <T extends Component> T first(Container within, Class<T> type, Predicate<T> condition) {
        for (T component : all(within, type)) {
            if (condition.test(component)) {
                return component;
            }
        }
        return null;
    }

    private static <T extends Component> List<T> all(Container within, Class<T> type) {
        List<T> found = new ArrayList<>();
        for (Component component : within.getComponents()) {
            if (type.isInstance(component)) {
                found.add(type.cast(component));
            }
            if (component instanceof Container) {
                found.addAll(all((Container) component, type));
            }
        }
        return found;
    }

    private static void paint(Window window, File picture) throws Exception {
        BufferedImage image = onEventThread(() -> {
            BufferedImage painted = new BufferedImage(window.getWidth(), window.getHeight(), BufferedImage.TYPE_INT_RGB);
            Graphics2D graphics = painted.createGraphics();
            window.paint(graphics);
            graphics.dispose();
            return painted;
        });
        ImageIO.write(image, "png", picture);
    }
}
