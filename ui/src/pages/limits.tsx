export function Limits() {
  return <h1>Limits</h1>;
}
