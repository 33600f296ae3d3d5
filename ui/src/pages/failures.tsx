export function Failures() {
  return <h1>Failures</h1>;
}
